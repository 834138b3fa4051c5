package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var domains = Domains{Trust: "trust", Agents: "agents"}

var noLog = LogFunc(func(Record) error { return nil })

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func open(t *testing.T) *CA {
	t.Helper()
	c, err := Open(filepath.Join(t.TempDir(), "ca.pem"), domains, noLog, at(noon))
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
func verifiedBy(c *CA, serverName string, chain ...*x509.Certificate) error {
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
			c, err := Open(file, domains, noLog, at(noon))
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
	_, err := Open(file, domains, noLog, at(noon))
	require.NoError(t, err)

	require.NoError(t, os.Chmod(file, 0o644))
	_, err = Open(file, domains, noLog, at(noon))
	require.ErrorContains(t, err, "chmod 600")
	require.NoError(t, os.Chmod(file, 0o600))

	ended, err := Open(file, domains, noLog, at(noon.AddDate(11, 0, 0)))
	require.NoError(t, err, "rotating it is the way out")
	require.ErrorContains(t, ended.Ended(), "clock")
	require.ErrorContains(t, ended.Ended(), "ca rotate start")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text[:len(text)/2], 0o600))
	_, err = Open(file, domains, noLog, at(noon))
	require.ErrorContains(t, err, "backup")
}

func TestCertificate_Agent(t *testing.T) {
	c := open(t)
	req, err := ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)
	id := &url.URL{Scheme: "spiffe", Host: "trust", Path: "/agent/a1"}
	issued, err := c.Agent(req, "a1.agents", id, 24*time.Hour, "test")
	require.NoError(t, err)
	cert, err := ParseCertificate(issued.Certificate)
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
	cert, err := newRotating(t).issue("trust", 10*time.Second)
	require.NoError(t, err)
	assert.Equal(t, noon.Add(-time.Second), cert.NotBefore)
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage)
}

func TestServerCertificate_Renewed(t *testing.T) {
	now := noon
	c, err := Open(filepath.Join(t.TempDir(), "ca.pem"), domains, noLog, func() time.Time { return now })
	require.NoError(t, err)
	s := NewServerCertificate(c, []string{"localhost", "127.0.0.1", "localhost"})
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
	_, err = ParseRequest(good)
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
		_, err := ParseRequest(text)
		require.ErrorIs(t, err, ErrBadRequest)
		require.ErrorContains(t, err, want)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(request(f, ecKey(f, elliptic.P256())))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if req, err := ParseRequest(text); err == nil && req.PublicKey == nil {
			t.Fatal("accepted without a key")
		}
	})
}

func FuzzParseCertificate(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if cert, err := ParseCertificate(text); err == nil && cert == nil {
			t.Fatal("neither certificate nor error")
		}
	})
}

func TestVerify_CacheChecksExpiry(t *testing.T) {
	r, stranger := newRotating(t), open(t)
	cert := r.agent()
	for range 2 {
		require.NoError(t, r.Verify(cert, noon))
		require.NoError(t, r.Verify(cert, cert.NotAfter))
		require.Error(t, r.Verify(cert, cert.NotAfter.Add(time.Second)))
		require.Error(t, r.Verify(cert, cert.NotBefore.Add(-time.Second)))
		require.Error(t, stranger.Verify(cert, noon))
	}
	odd := *cert
	odd.UnhandledCriticalExtensions = []asn1.ObjectIdentifier{{1, 2, 3}}
	assert.Error(t, r.Verify(&odd, noon), "who understands less of it is told so")
}

func TestVerify_CacheRefusesForgery(t *testing.T) {
	r := newRotating(t)
	good := r.agent()
	require.NoError(t, r.Verify(good, noon))
	assert.Error(t, r.Verify(forgeryOf(t, good), noon))
}

// forgeryOf is a certificate whose signature is wrong: it passes where that is not verified.
func forgeryOf(t *testing.T, good *x509.Certificate) *x509.Certificate {
	t.Helper()
	forged, err := x509.ParseCertificate(good.Raw)
	require.NoError(t, err)
	forged.Raw = append([]byte(nil), good.Raw...)
	forged.Raw[len(forged.Raw)-1] ^= 1 // of the signature
	forged.Signature = append([]byte(nil), forged.Signature...)
	forged.Signature[len(forged.Signature)-1] ^= 1
	return forged
}

func TestVerify_TrustsTLSChains(t *testing.T) {
	r, stranger := newRotating(t), open(t)
	seen := forgeryOf(t, r.agent()) // so that to verify it again would show
	for _, chains := range [][][]*x509.Certificate{nil, {{}}, {{seen}}, {{seen, stranger.Intermediates()[0]}}, {{seen, r.Certificate()}}, {{seen, r.Intermediates()[1]}}} {
		r.Took(chains)
		require.Error(t, r.Verify(seen, noon), "nothing of ours was verified")
	}
	r.Took([][]*x509.Certificate{{seen, stranger.Certificate()}, {seen, r.Intermediates()[0]}})
	require.NoError(t, r.Verify(seen, noon))
	require.Error(t, r.Verify(seen, seen.NotAfter.Add(time.Second)), "it ends when it ends")
	r.take(Start)
	assert.Error(t, r.Verify(seen, noon), "and was of one state of the CA")
}

// FuzzFile: whatever is in the file, it is read back as it is written or refused.
func FuzzFile(f *testing.F) {
	file := filepath.Join(f.TempDir(), "ca.pem")
	c, err := Open(file, domains, noLog, time.Now)
	require.NoError(f, err)
	for _, step := range []Step{Start, Sign, Finish, Start, Abort} {
		text, err := inFile(file).Load()
		require.NoError(f, err)
		f.Add(text)
		_, err = c.Take(step)
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text)
		if err != nil {
			return
		}
		first, err := s.encode()
		require.NoError(t, err)
		again, err := parse(first)
		require.NoError(t, err)
		second, err := again.encode()
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second))
	})
}
