package gateway_test

import (
	"crypto/tls"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// hostile is the gateway's port for HTTPS.
func (w *world) hostile(protocol string) hostile.Target {
	return hostile.Target{Addr: w.secure.String(), TLS: &tls.Config{
		RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol},
	}}
}

func TestGateway_ClosesAttacks(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		func(c *gateway.Config) {
			c.Patience = gateway.Patience{Header: time.Second, Idle: time.Second, Progress: time.Second}
		})
	before := runtime.NumGoroutine()
	const patience = time.Minute
	anything := func([]byte) bool { return true }
	overPlain := hostile.HTTP1("/")
	for i := range overPlain {
		overPlain[i].Secure = false
	}
	for name, attack := range map[string]struct {
		target  hostile.Target
		attacks []hostile.Attack
	}{
		"TLS":    {hostile.Target{Addr: w.secure.String()}, hostile.TLS(host)},
		"HTTP/1": {w.hostile("http/1.1"), hostile.HTTP1("/")},
		"HTTP/2": {w.hostile("h2"), hostile.HTTP2("/", 10_000)},
		"plain":  {hostile.Target{Addr: w.plain.String()}, overPlain},
	} {
		left, err := attack.target.LeftOpen(t.Context(), attack.attacks, patience, anything)
		require.NoError(t, err, name)
		assert.Empty(t, left, name)
	}
	w.served(w.client(true))
	await.Until(t, "the goroutines of all attacks have ended", func() bool { return runtime.NumGoroutine() < before+20 })
}
