package runnertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// RoleRoot is for a certificate that no intermediate CA has signed.
const RoleRoot = "root"

// CA stands for the control plane's CA: a root, and an intermediate CA for each role. Its
// intermediate CAs have no name constraints, so it signs any name for a test.
type CA struct {
	Pool *x509.CertPool // the root
	Cert *x509.Certificate
	// Intermediates are those of all roles.
	Intermediates *x509.CertPool

	signers map[string]signer // by role
}

type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a CA for one test.
func NewCA(t testing.TB) *CA {
	t.Helper()
	root := newSigner(t, RoleRoot, nil)
	ca := &CA{Pool: x509.NewCertPool(), Cert: root.cert, Intermediates: x509.NewCertPool(), signers: map[string]signer{RoleRoot: root}}
	ca.Pool.AddCert(root.cert)
	for _, role := range []string{trustanchor.RoleAgent, trustanchor.RoleRunner, trustanchor.RoleOperator, trustanchor.RoleServer, trustanchor.RoleControlPlane} {
		intermediate := newSigner(t, role, &root)
		ca.signers[role] = intermediate
		ca.Intermediates.AddCert(intermediate.cert)
	}
	return ca
}

// newSigner returns a CA's certificate and key; the root's if by is nil.
func newSigner(t testing.TB, role string, by *signer) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test CA " + role},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	parent := signer{template, key}
	if by != nil {
		parent, template.URIs = *by, []*url.URL{trustanchor.IntermediateURI(TrustDomain, role)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signer{cert, key}
}

// Issue returns a certificate for a SPIFFE ID and DNS names, valid for an hour. The intermediate CA
// of the ID's role signs it: the servers' for an ID of no role.
func (ca *CA) Issue(t testing.TB, id *url.URL, names ...string) tls.Certificate {
	t.Helper()
	return ca.IssueAt(t, time.Now(), id, names...)
}

// IssueAt is like Issue, at another time.
func (ca *CA) IssueAt(t testing.TB, at time.Time, id *url.URL, names ...string) tls.Certificate {
	t.Helper()
	return ca.IssueWith(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = at.Add(-time.Minute), at.Add(time.Hour) }, id, names...)
}

// IssueWith is like Issue, with a function that changes the certificate.
func (ca *CA) IssueWith(t testing.TB, change func(*x509.Certificate), id *url.URL, names ...string) tls.Certificate {
	t.Helper()
	role, _, _ := strings.Cut(strings.TrimPrefix(id.Path, "/"), "/")
	if _, ok := ca.signers[role]; !ok || role == RoleRoot {
		role = trustanchor.RoleServer
	}
	return ca.issue(t, role, change, id, names...)
}

// Granted returns a change of a certificate that gives it a grant.
func Granted(t testing.TB, text string) func(*x509.Certificate) {
	t.Helper()
	grant, err := credentials.ParseGrant(text)
	require.NoError(t, err)
	extensions, err := grant.Extensions()
	require.NoError(t, err)
	return func(c *x509.Certificate) { c.ExtraExtensions = extensions }
}

// IssueBy is like Issue, with the CA of a role of the caller's choice, as its thief would have it.
func (ca *CA) IssueBy(t testing.TB, role string, id *url.URL, names ...string) tls.Certificate {
	t.Helper()
	return ca.issue(t, role, func(*x509.Certificate) {}, id, names...)
}

func (ca *CA) issue(t testing.TB, role string, change func(*x509.Certificate), id *url.URL, names ...string) tls.Certificate {
	t.Helper()
	by := ca.signers[role]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names, URIs: []*url.URL{id},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, by.cert.Raw}, PrivateKey: key}
}
