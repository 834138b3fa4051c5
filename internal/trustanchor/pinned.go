package trustanchor

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Fingerprint returns how tokens and Runners name a CA: by its public key, so that the CA may renew
// its own certificate.
func Fingerprint(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// IsFingerprint reports whether a text has the form of a Fingerprint.
func IsFingerprint(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// FingerprintError means that none of the presented certificates is the expected CA.
type FingerprintError struct{ Want, Got string }

func (e *FingerprintError) Error() string {
	return fmt.Sprintf("the certificate's CA has the fingerprint %s, and %s is expected", e.Got, e.Want)
}

// Pinned returns the configuration for the first connection to a control plane, of which only its
// CA's fingerprint is known. A nil now means time.Now.
func Pinned(host, fingerprint string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, Time: now,
		// The roots are unknown until the server has shown its chain, so that
		// crypto/tls cannot verify it: verifyPinned does, completely.
		InsecureSkipVerify: true, //nolint:gosec // verifyPinned verifies the chain
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyPinned(host, fingerprint, cs.PeerCertificates, now)
		},
	}
}

// verifyPinned verifies the chain as crypto/tls would, with the CA that has the fingerprint as the
// only root. That may be a former one, to which the current CA's chain leads back.
func verifyPinned(host, fingerprint string, chain []*x509.Certificate, now func() time.Time) error {
	if len(chain) == 0 {
		return errors.New("the server presented no certificate")
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range chain[1:] {
		if c.IsCA && Fingerprint(c) == fingerprint {
			roots.AddCert(Of(c))
			found = true
		} else {
			intermediates.AddCert(c)
		}
	}
	if !found {
		return &FingerprintError{Want: fingerprint, Got: Fingerprint(chain[len(chain)-1])}
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates}
	if now != nil {
		opts.CurrentTime = now()
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}
