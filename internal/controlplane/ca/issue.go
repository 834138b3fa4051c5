package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Issued is a certificate that was issued to an agent or a Runner.
type Issued struct {
	// Certificate in PEM: the leaf, then its intermediate CA, then the path from earlier root CAs.
	Certificate string
	// Serial in hexadecimal.
	Serial   string
	NotAfter time.Time
}

// ErrBadRequest reports an invalid certificate request.
var ErrBadRequest = errors.New("bad certificate request")

type requestError string

func (e requestError) Error() string        { return string(e) }
func (e requestError) Is(target error) bool { return target == ErrBadRequest }

// ParseRequest decodes a certificate request in PEM. It checks that its sender holds the key and
// that the key is acceptable. It ignores names in the request.
func ParseRequest(text string) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, requestError("it is not a CERTIFICATE REQUEST in PEM")
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, requestError("it cannot be parsed")
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() && key.Curve != elliptic.P384() {
		return nil, requestError("its key must be ECDSA P-256 or P-384")
	}
	if err := req.CheckSignature(); err != nil {
		return nil, requestError("it is not signed by its own key")
	}
	return req, nil
}

// Agent issues an agent's certificate. With it the agent is a client of the control plane and of
// frps. It is also the server of the Runner API and, under its own name, of the Kubernetes
// API.
func (c Issuer) Agent(req *x509.CertificateRequest, serverName string, id *url.URL, ttl time.Duration, reason string) (Issued, error) {
	return c.issue(req.PublicKey, &x509.Certificate{
		Subject:  pkix.Name{CommonName: serverName},
		DNSNames: []string{serverName, runnerapi.KubernetesServerName(serverName)}, URIs: []*url.URL{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ttl, reason)
}

// Client issues the certificate and key of a Runner or an operator in PEM, with further extensions.
// The role is that of the SPIFFE ID.
func (c Issuer) Client(name string, id *url.URL, ttl time.Duration, reason string, more ...pkix.Extension) (Issued, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, nil, err
	}
	issued, err := c.issue(key.Public(), &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{id}, ExtraExtensions: more,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ttl, reason)
	if err != nil {
		return Issued{}, nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Issued{}, nil, err
	}
	return issued, keyPEM, nil
}

// Runner issues a Runner's certificate for the key of a request, with further extensions. The
// serial number is that of all its certificates, so that one revocation ends them all.
func (c Issuer) Runner(req *x509.CertificateRequest, serial, name string, id *url.URL, ttl time.Duration, reason string, more ...pkix.Extension) (Issued, error) {
	number, ok := new(big.Int).SetString(serial, 16)
	if !ok {
		return Issued{}, fmt.Errorf("serial number %.40q of Runner %s is not hexadecimal", serial, name)
	}
	s := c.state.Load()
	leaf, signer, err := c.signRecorded(s, req.PublicKey, &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{id}, ExtraExtensions: more,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   c.now().Add(-slack(ttl)), NotAfter: c.now().Add(ttl),
	}, reason)
	if err != nil {
		return Issued{}, err
	}
	return s.issued(leaf, signer), nil
}

// NewSerial returns the serial number of a Runner that gets its certificates from Runner.
func NewSerial() (string, error) {
	number, err := newSerial()
	if err != nil {
		return "", err
	}
	return number.Text(16), nil
}

// Server issues a certificate for the control plane's own listeners. The names may be DNS names or
// IP addresses.
func (c Issuer) Server(names []string, ttl time.Duration) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	s := c.state.Load()
	leaf, signer, err := c.sign(s, key.Public(), template, c.now().Add(-backdate), ttl, reasonListeners)
	if err != nil {
		return nil, err
	}
	// The root CAs are included: a peer with only the fingerprint of one finds it there.
	cert := &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	for _, above := range slices.Concat(s.chain(signer), s.anchors()) {
		cert.Certificate = append(cert.Certificate, above.Raw)
	}
	return cert, nil
}

func (c Issuer) issue(public any, template *x509.Certificate, ttl time.Duration, reason string) (Issued, error) {
	s := c.state.Load()
	leaf, signer, err := c.sign(s, public, template, c.now().Add(-slack(ttl)), ttl, reason)
	if err != nil {
		return Issued{}, err
	}
	return s.issued(leaf, signer), nil
}

// slack is how far a certificate begins in the past, for peers whose clocks are a little behind.
// Holders renew by its length, so that part is kept small.
func slack(ttl time.Duration) time.Duration { return min(time.Hour, ttl/10) }

// Life returns for how long a certificate was issued.
func Life(cert *x509.Certificate) time.Duration {
	whole := cert.NotAfter.Sub(cert.NotBefore)
	return max(whole-time.Hour, whole*10/11) // without its slack
}

func (s *state) issued(leaf *x509.Certificate, signer pair) Issued {
	return Issued{
		Certificate: string(append(encodeCert(leaf.Raw), encodeCerts(s.chain(signer))...)),
		Serial:      leaf.SerialNumber.Text(16), NotAfter: leaf.NotAfter,
	}
}

// sign issues a certificate with its own serial number. It returns its intermediate CA as
// well.
func (c Issuer) sign(s *state, public any, template *x509.Certificate, from time.Time, ttl time.Duration, reason string) (*x509.Certificate, pair, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, pair{}, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = from, c.now().Add(ttl)
	return c.signRecorded(s, public, template, reason)
}

// signRecorded issues a certificate that expires no later than its intermediate CA. All leaf
// certificates are signed here. It returns none that the log does not have.
func (c Issuer) signRecorded(s *state, public any, template *x509.Certificate, reason string) (*x509.Certificate, pair, error) {
	role, _ := roleOf(template)
	signer := s.signing.signer(role, c.now())
	if signer.key == nil {
		return nil, pair{}, c.noSigner(role)
	}
	if end := signer.cert.NotAfter; template.NotAfter.After(end) {
		template.NotAfter = end
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, public, signer.key)
	if err != nil {
		return nil, pair{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, pair{}, err
	}
	if err := c.record(leaf, reason); err != nil {
		return nil, pair{}, err
	}
	return leaf, signer, nil
}

// noSigner returns why no certificate of a role can be signed.
func (c Issuer) noSigner(role string) error {
	if _, err := c.UpkeepDue(); err != nil {
		return err
	}
	return fmt.Errorf("no intermediate CA signs for the role %.20q now", role)
}
