package main

import (
	"crypto/x509"

	"github.com/spf13/pflag"
)

// webhookCA is the flag for receivers within one's own walls.
type webhookCA struct{ file string }

func (c *webhookCA) add(f *pflag.FlagSet) {
	f.StringVar(&c.file, "webhook-ca", "", "file with the CAs of webhook receivers, in addition to the machine's CAs")
}

// roots returns the CAs that a receiver's certificate may be of; nil means the machine's.
func (c *webhookCA) roots() (*x509.CertPool, error) {
	if c.file == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without any
	}
	return addCAs(pool, "--webhook-ca", c.file)
}
