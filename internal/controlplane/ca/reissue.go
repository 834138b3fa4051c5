package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"
)

// Renew issues a certificate again, from the CA that signs now and valid from now on for ttl. The
// key, the names, other extensions and even the serial number stay the same. So what is known about
// the old certificate, for example a revocation, holds for the new one. The old one must have been
// verified.
func (c Issuer) Renew(old *x509.Certificate, ttl time.Duration, reason string) (Issued, error) {
	s := c.state.Load()
	template := &x509.Certificate{
		SerialNumber: old.SerialNumber, Subject: old.Subject,
		DNSNames: old.DNSNames, URIs: old.URIs, ExtKeyUsage: old.ExtKeyUsage,
		NotBefore: c.now().Add(-slack(ttl)), NotAfter: c.now().Add(ttl), ExtraExtensions: ownExtensions(old),
	}
	leaf, signer, err := c.signRecorded(s, old.PublicKey, template, reason)
	if err != nil {
		return Issued{}, err
	}
	return s.issued(leaf, signer), nil
}

// Again returns a valid certificate as Renew does, without issuing anything.
func (c Issuer) Again(cert *x509.Certificate) Issued {
	s := c.state.Load()
	return s.issued(cert, pair{cert: s.issuerOf(cert).cert})
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
