package config

import (
	"crypto/x509"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// CAPool returns the CAs that the operator named for the control plane, or nil.
func (c Config) CAPool() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	return c.addCAs(x509.NewCertPool())
}

// DownloadPool returns the CAs of sites from which releases are downloaded: the system's, and those
// that the operator named, since a mirror often uses the same. Nil means only the system's.
func (c Config) DownloadPool() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without any
	}
	return c.addCAs(pool)
}

func (c Config) addCAs(pool *x509.CertPool) (*x509.CertPool, error) {
	text, err := boundedfile.Read(c.CAFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("PIPEOPS_CA_FILE: %w", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("PIPEOPS_CA_FILE: %s holds no PEM certificate", c.CAFile)
	}
	return pool, nil
}
