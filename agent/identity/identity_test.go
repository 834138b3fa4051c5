package identity_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const serverName = "a1.agents.test"

// issue makes an identity as a control plane would answer it.
func issue(t testing.TB) *identity.Identity {
	t.Helper()
	caKey, err := identity.NewKey()
	require.NoError(t, err)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	require.NoError(t, err)
	key, err := identity.NewKey()
	require.NoError(t, err)
	csrPEM, err := identity.CSR(key)
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(csrPEM))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, csr.CheckSignature())
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{serverName}, NotBefore: now, NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, csr.PublicKey, caKey)
	require.NoError(t, err)
	id, err := identity.New(key, controlapi.Identity{
		AgentID: "a1", ServerName: serverName,
		Certificate: inPEM(der) + inPEM(caDER), CABundle: inPEM(caDER),
	}, identity.Registration{SystemRoots: true, Token: "t1"})
	require.NoError(t, err)
	return id
}

func inPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestTLS_SendsNoCA(t *testing.T) {
	id := issue(t)
	require.Len(t, id.Certificate.Certificate, 2, "as it was issued")
	for _, cfg := range []*tls.Config{id.TLS(), id.ControlPlaneTLS(nil), id.ControlPlaneTLS(x509.NewCertPool())} {
		require.Len(t, cfg.Certificates, 1)
		assert.Equal(t, [][]byte{id.Certificate.Leaf.Raw}, cfg.Certificates[0].Certificate)
		assert.Equal(t, id.Key(), cfg.Certificates[0].PrivateKey)
	}
	assert.Len(t, id.Certificate.Certificate, 2, "Runners are")
}

func TestFile_RoundTrip(t *testing.T) {
	id := issue(t)
	file := identity.File{Dir: filepath.Join(t.TempDir(), "state")}
	parts, version, err := file.Load(t.Context())
	require.NoError(t, err)
	assert.Nil(t, parts, "nothing is stored yet")

	parts, err = id.Encode()
	require.NoError(t, err)
	saved, err := file.Save(t.Context(), parts, version)
	require.NoError(t, err)
	require.True(t, saved)
	parts, _, err = file.Load(t.Context())
	require.NoError(t, err)
	got, err := identity.Decode(parts)
	require.NoError(t, err)
	assert.Equal(t, id.Identity, got.Identity)
	assert.Equal(t, id.Key(), got.Key())
	assert.Equal(t, id.Registration, got.Registration)
	assert.True(t, got.Same(id))
	saved, err = file.Save(t.Context(), parts, version)
	require.NoError(t, err)
	assert.False(t, saved, "something was stored since that version")

	info, err := os.Stat(file.String())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(file.Dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "no temporary file is left")
}

func TestFile_RefusesReadableByOthers(t *testing.T) {
	file := identity.File{Dir: t.TempDir()}
	_, err := file.Save(t.Context(), map[string][]byte{"key.pem": []byte("x")}, "")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(file.String(), 0o644))
	_, _, err = file.Load(t.Context())
	require.ErrorContains(t, err, "chmod 600")
}

func TestRequest_KeepsIdentity(t *testing.T) {
	id := issue(t)
	parts, err := id.Encode()
	require.NoError(t, err)
	none, err := identity.RequestIn(parts)
	require.NoError(t, err)
	assert.Nil(t, none)

	key, err := identity.NewKey()
	require.NoError(t, err)
	want := &identity.Request{Key: key, By: "pod-1"}
	for _, beside := range []map[string][]byte{nil, parts} {
		all, err := want.With(beside)
		require.NoError(t, err)
		got, err := identity.RequestIn(all)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		_, err = identity.Decode(all)
		assert.Equal(t, beside == nil, err != nil, "the identity is as it was")
	}
	again, err := identity.RequestIn(parts)
	require.NoError(t, err)
	assert.Nil(t, again, "the parts that were given are as they were")
}

func TestNew_RefusesOtherKey(t *testing.T) {
	id := issue(t)
	other, err := identity.NewKey()
	require.NoError(t, err)
	_, err = identity.New(other, id.Identity, identity.Registration{})
	require.ErrorContains(t, err, "does not fit")
}

func TestRenewAt(t *testing.T) {
	id := issue(t)
	assert.WithinDuration(t, id.NotAfter().Add(-8*time.Hour), id.RenewAt(), time.Second)
}

func TestHasCA(t *testing.T) {
	id := issue(t)
	block, _ := pem.Decode([]byte(id.CABundle))
	ca, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.True(t, id.HasCA(controlapi.Fingerprint(ca)))
	assert.False(t, id.HasCA(controlapi.Fingerprint(id.Certificate.Leaf)))
}

func FuzzDecode(f *testing.F) {
	parts, err := issue(f).Encode()
	require.NoError(f, err)
	f.Add(parts["identity.json"], parts["key.pem"], parts["registration.json"])
	f.Add([]byte("{}"), []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, answer, key, trust []byte) {
		id, err := identity.Decode(map[string][]byte{"identity.json": answer, "key.pem": key, "registration.json": trust})
		if err == nil && (id.AgentID == "" || id.Certificate.Leaf == nil) {
			t.Fatal("accepted an identity without ID or certificate")
		}
	})
}
