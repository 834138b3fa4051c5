package ca_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func TestVerify_CacheChecksExpiry(t *testing.T) {
	c, stranger := open(t), open(t)
	req, err := ca.ParseRequest(request(t, ecKey(t, elliptic.P256())))
	require.NoError(t, err)
	issued, err := c.Agent(req, "a1.agents", credentials.AgentURI("trust", "a1"), time.Hour, "test")
	require.NoError(t, err)
	cert, err := ca.ParseCertificate(issued.Certificate)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, c.Verify(cert, noon))
		require.NoError(t, c.Verify(cert, cert.NotAfter))
		require.Error(t, c.Verify(cert, cert.NotAfter.Add(time.Second)))
		require.Error(t, c.Verify(cert, cert.NotBefore.Add(-time.Second)))
		require.Error(t, stranger.Verify(cert, noon))
	}
	odd := *cert
	odd.UnhandledCriticalExtensions = []asn1.ObjectIdentifier{{1, 2, 3}}
	assert.Error(t, c.Verify(&odd, noon), "who understands less of it is told so")
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
	r.take(ca.Start)
	assert.Error(t, r.Verify(seen, noon), "and was of one state of the CA")
}
