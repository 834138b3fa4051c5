package ca_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var domains = ca.Domains{Trust: "trust", Agents: "agents"}

var noLog = ca.LogFunc(func(ca.Record) error { return nil })

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func open(t *testing.T) *ca.CA {
	t.Helper()
	c, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), domains, noLog, at(noon))
	require.NoError(t, err)
	return c
}

func request(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"evil.example"}}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return key
}

// verifiedBy verifies a chain as a peer does that trusts the root CA.
func verifiedBy(c *ca.CA, serverName string, chain ...*x509.Certificate) error {
	opts := x509.VerifyOptions{
		DNSName: serverName, Roots: c.Pool(), Intermediates: x509.NewCertPool(), CurrentTime: noon,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, above := range chain[1:] {
		opts.Intermediates.AddCert(above)
	}
	_, err := chain[0].Verify(opts)
	return err
}

func TestCA_OpenCreatesOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	certs := make(chan *x509.Certificate, 4)
	for range 4 {
		go func() {
			c, err := ca.Open(file, domains, noLog, at(noon))
			if !assert.NoError(t, err) {
				certs <- nil
				return
			}
			certs <- c.Certificate()
		}()
	}
	first := await.Receive(t, certs, "a CA")
	for range 3 {
		assert.Equal(t, first, await.Receive(t, certs, "the same CA"))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left behind")
}

func TestCA_OpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	_, err := ca.Open(file, domains, noLog, at(noon))
	require.NoError(t, err)

	require.NoError(t, os.Chmod(file, 0o644))
	_, err = ca.Open(file, domains, noLog, at(noon))
	require.ErrorContains(t, err, "chmod 600")
	require.NoError(t, os.Chmod(file, 0o600))

	ended, err := ca.Open(file, domains, noLog, at(noon.AddDate(11, 0, 0)))
	require.NoError(t, err, "rotating it is the way out")
	require.ErrorContains(t, ended.Ended(), "clock")
	require.ErrorContains(t, ended.Ended(), "ca rotate start")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text[:len(text)/2], 0o600))
	_, err = ca.Open(file, domains, noLog, at(noon))
	require.ErrorContains(t, err, "backup")
}

func TestCertificate_Agent(t *testing.T) {
	c := open(t)
	req, err := ca.ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)
	id := &url.URL{Scheme: "spiffe", Host: "trust", Path: "/agent/a1"}
	issued, err := c.Agent(req, "a1.agents", id, 24*time.Hour, "test")
	require.NoError(t, err)
	cert, err := ca.ParseCertificate(issued.Certificate)
	require.NoError(t, err)
	assert.Equal(t, []string{"a1.agents", "kubernetes.a1.agents"}, cert.DNSNames, "names of the request are ignored")
	assert.Equal(t, "spiffe://trust/agent/a1", cert.URIs[0].String())
	assert.Equal(t, noon.Add(-time.Hour), cert.NotBefore)
	assert.Equal(t, noon.Add(24*time.Hour), cert.NotAfter)
	assert.Equal(t, issued.Serial, cert.SerialNumber.Text(16))
	assert.False(t, cert.IsCA)
	require.NoError(t, c.Verify(cert, noon))
	require.Error(t, c.Verify(cert, noon.Add(25*time.Hour)), "expired")
	require.Error(t, open(t).Verify(cert, noon), "another CA")
	require.NoError(t, verifiedBy(c, "a1.agents", trustanchor.Parse([]byte(issued.Certificate))...))
}

func TestCertificate_BackdatesShortLives(t *testing.T) {
	issued, _, err := open(t).Client("r", &url.URL{Scheme: "spiffe", Host: "trust", Path: "/runner/r"}, 10*time.Second, "test")
	require.NoError(t, err)
	cert, err := ca.ParseCertificate(issued.Certificate)
	require.NoError(t, err)
	assert.Equal(t, noon.Add(-time.Second), cert.NotBefore)
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage)
}

func TestServerCertificate_Renewed(t *testing.T) {
	now := noon
	c, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), domains, noLog, func() time.Time { return now })
	require.NoError(t, err)
	s := ca.NewServerCertificate(c, []string{"localhost", "127.0.0.1", "localhost"})
	first, err := s.Get(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"localhost"}, first.Leaf.DNSNames)
	assert.Equal(t, "127.0.0.1", first.Leaf.IPAddresses[0].String())
	assert.Len(t, first.Certificate, 3, "the intermediate and the root CA are sent with it")
	short, err := s.GetShort(nil)
	require.NoError(t, err)
	assert.Equal(t, first.Certificate[:2], short.Certificate, "but the root not to peers that have it")
	assert.True(t, first.Leaf.NotBefore.Before(noon.Add(-23*time.Hour)))

	now = noon.AddDate(0, 0, 59)
	same, err := s.Get(nil)
	require.NoError(t, err)
	assert.Same(t, first, same)
	now = noon.AddDate(0, 0, 61)
	next, err := s.Get(nil)
	require.NoError(t, err)
	assert.True(t, next.Leaf.NotAfter.After(first.Leaf.NotAfter))
}

func TestParseRequest_Refuses(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	good := request(t, ecKey(t, elliptic.P384()))
	_, err = ca.ParseRequest(good)
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(good))
	block.Bytes[len(block.Bytes)-1] ^= 1
	for text, want := range map[string]string{
		"hello":                               "PEM",
		request(t, edKey):                     "ECDSA",
		request(t, ecKey(t, elliptic.P224())): "ECDSA",
		string(pem.EncodeToMemory(block)):     "signed",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1}})): "parsed",
	} {
		_, err := ca.ParseRequest(text)
		require.ErrorIs(t, err, ca.ErrBadRequest)
		require.ErrorContains(t, err, want)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(request(f, ecKey(f, elliptic.P256())))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if req, err := ca.ParseRequest(text); err == nil && req.PublicKey == nil {
			t.Fatal("accepted without a key")
		}
	})
}

func FuzzParseCertificate(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if cert, err := ca.ParseCertificate(text); err == nil && cert == nil {
			t.Fatal("neither certificate nor error")
		}
	})
}
