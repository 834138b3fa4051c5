package credentials

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
)

// KeyFingerprint returns the fingerprint of a certificate's public key: the SHA-256 of its
// SubjectPublicKeyInfo. It stays the same when a certificate is issued again for the same key.
func KeyFingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PublicKey returns the Runner's public key in PEM, for certification by a customer's own CA.
func (c *Credentials) PublicKey() ([]byte, error) {
	cert, err := c.TLSCertificate()
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: cert.Leaf.RawSubjectPublicKeyInfo}), nil
}

// Chain is like PEM of all that the Runner presents: its certificate, and its endorsement.
func (c *Credentials) Chain() string {
	if c.Endorsement == "" {
		return c.Certificate
	}
	return strings.TrimRight(c.Certificate, "\n") + "\n" + c.Endorsement
}

// Endorse adds a certificate that a customer's CA has made for the Runner's public key, with the
// chain to that CA. It replaces an earlier one.
func (c *Credentials) Endorse(certificates []byte) error {
	next := *c
	next.Endorsement = string(certificates)
	if _, err := next.TLSCertificate(); err != nil {
		return err
	}
	*c = next
	return nil
}

// endorse adds the endorsement to what the Runner presents.
func (c *Credentials) endorse(cert *tls.Certificate) error {
	if c.Endorsement == "" {
		return nil
	}
	ours := false
	for rest := bytes.TrimSpace([]byte(c.Endorsement)); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return errors.New("endorsement: is not certificates in PEM")
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return errors.New("endorsement: holds what is not a certificate")
		}
		ours = ours || bytes.Equal(parsed.RawSubjectPublicKeyInfo, cert.Leaf.RawSubjectPublicKeyInfo)
		cert.Certificate = append(cert.Certificate, block.Bytes)
	}
	if !ours {
		return errors.New("endorsement: has no certificate for the Runner's key (fix: have the CA certify what `pipeops-runner credentials --public-key` prints)")
	}
	return nil
}
