package controlapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// The responses break off after fields that a caller would take: an error never comes with a
// part of an identity.
func TestClient_ErrorHasNoResult(t *testing.T) {
	ca := newAuthority(t)
	s := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"agentId":"a1","certificate":"c","id":"t1","intervalSeconds":5,"seq":7,"caBundle":1,"expiresAt":1,"labels":1,"hash":1}`))
	}), ca.issue(t, unchanged))
	c := newClient(t, s.URL, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.issue(t, unchanged)}}, noChange)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, call := range map[string]func() (any, error){
		"register":  func() (any, error) { return c.Register(t.Context(), newTestToken(t, ""), soundRegister()) },
		"renew":     func() (any, error) { return c.Renew(t.Context(), "csr") },
		"recover":   func() (any, error) { return c.Recover(t.Context(), "old", key, "csr") },
		"token":     func() (any, error) { return c.CheckToken(t.Context(), newTestToken(t, ""), controlapi.TokenCheck{}) },
		"heartbeat": func() (any, error) { return c.Heartbeat(t.Context(), controlapi.Heartbeat{}) },
		"audit":     func() (any, error) { return c.Audit(t.Context(), controlapi.AuditRequest{}) },
	} {
		got, err := call()
		if !assert.ErrorContains(t, err, "not JSON", name) {
			continue
		}
		assert.Zero(t, got, name)
	}
}
