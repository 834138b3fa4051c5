// Package trustanchor makes trust anchors of CA certificates, for agents and Runners, which must
// trust a control plane for longer than any of its CAs lasts. It also checks for which role a chain
// from an anchor is good. It imports none of our packages, so that every wire may import it.
package trustanchor

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// forever is the end of what has no end (RFC 5280, section 4.1.2.5).
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Of returns the trust anchor in a CA's certificate: its name and its key (RFC 5280, section 6.1.1
// d). The CA's expiry and the number of CAs that may follow it are not part of that. So an agent
// that was away while its CA expired still follows the chain from the new CA, which the old one has
// signed, back to it.
func Of(ca *x509.Certificate) *x509.Certificate {
	anchor := *ca
	anchor.NotBefore, anchor.NotAfter = time.Time{}, forever
	anchor.MaxPathLen, anchor.MaxPathLenZero = -1, false
	return &anchor
}

// Append adds the CAs in a PEM text to a pool and reports whether there was any. Like
// x509.CertPool.AppendCertsFromPEM, it skips everything that is not a certificate.
func Append(pool *x509.CertPool, text []byte) bool {
	found := false
	for _, ca := range Parse(text) {
		pool.AddCert(Of(ca))
		found = true
	}
	return found
}

// Parse returns the certificates in a PEM text.
func Parse(text []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
	return certs
}
