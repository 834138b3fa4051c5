package config

import (
	"crypto/x509"
	"fmt"
)

// CAPool reads the CAs that the operator named for the control plane, or
// answers nil.
func (c Config) CAPool() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	text, err := readBounded(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("PIPEOPS_CA_FILE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("PIPEOPS_CA_FILE: %s holds no PEM certificate", c.CAFile)
	}
	return pool, nil
}
