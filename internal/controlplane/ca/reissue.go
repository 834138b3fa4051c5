package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// Reissue issues the same certificate again, from the CA that signs now. The key, the names, the
// end, other extensions and even the serial number stay the same. So what is known about the old
// certificate, for example a revocation, holds for the new one. The old one must have been
// verified.
func (c *CA) Reissue(old *x509.Certificate, reason string) (Issued, error) {
	s := c.state.Load()
	template := &x509.Certificate{
		SerialNumber: old.SerialNumber, Subject: old.Subject,
		DNSNames: old.DNSNames, URIs: old.URIs, ExtKeyUsage: old.ExtKeyUsage,
		NotBefore: old.NotBefore, NotAfter: old.NotAfter, ExtraExtensions: ownExtensions(old),
	}
	leaf, err := c.signRecorded(s, old.PublicKey, template, reason)
	if err != nil {
		return Issued{}, err
	}
	return s.issued(leaf), nil
}

// x509Extensions is the arc of the extensions that crypto/x509 creates from a certificate's fields
// (RFC 5280, section 4.2.1).
var x509Extensions = asn1.ObjectIdentifier{2, 5, 29}

// ownExtensions returns the extensions that the certificate's issuer added itself.
func ownExtensions(cert *x509.Certificate) []pkix.Extension {
	var own []pkix.Extension
	for _, e := range cert.Extensions {
		if len(e.Id) < len(x509Extensions) || !e.Id[:len(x509Extensions)].Equal(x509Extensions) {
			own = append(own, e)
		}
	}
	return own
}
