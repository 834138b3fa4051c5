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

// TestTheGatewayEndsEveryAttack, and nothing stays of any.
func TestTheGatewayEndsEveryAttack(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		func(c *gateway.Config) {
			c.Patience = gateway.Patience{Header: time.Second, Idle: time.Second, Progress: time.Second}
		})
	do(t, w.client(false), request(t, http.MethodGet, "https://"+host+"/", nil)) // so that there is a certificate
	before := runtime.NumGoroutine()
	secure := func(protocol string) hostile.Target {
		return hostile.Target{Addr: w.secure.String(), TLS: &tls.Config{
			RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol},
		}}
	}
	const patience = 30 * time.Second
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
		"HTTP/1": {secure("http/1.1"), hostile.HTTP1("/")},
		"HTTP/2": {secure("h2"), hostile.HTTP2("/", 10_000)},
		"plain":  {hostile.Target{Addr: w.plain.String()}, overPlain},
	} {
		left, err := attack.target.LeftOpen(t.Context(), attack.attacks, patience, anything)
		require.NoError(t, err, name)
		assert.Empty(t, left, name)
	}
	do(t, w.client(true), request(t, http.MethodGet, "https://"+host+"/", nil))
	await.Until(t, "the goroutines of all attacks have ended", func() bool { return runtime.NumGoroutine() < before+20 })
}
