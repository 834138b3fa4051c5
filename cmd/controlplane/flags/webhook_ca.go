package flags

import (
	"crypto/x509"

	"github.com/spf13/pflag"
)

// WebhookCA is the flag for receivers in a private network.
type WebhookCA struct{ file string }

// Add adds the flag.
func (c *WebhookCA) Add(f *pflag.FlagSet) {
	f.StringVar(&c.file, "webhook-ca", "", "file with the CAs of webhook receivers, in addition to the machine's CAs")
}

// Roots returns the CAs that a receiver's certificate may be of; nil means the machine's.
func (c *WebhookCA) Roots() (*x509.CertPool, error) {
	if c.file == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without any
	}
	return addCAs(pool, "--webhook-ca", c.file)
}
