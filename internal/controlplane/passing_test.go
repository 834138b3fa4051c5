package controlplane

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// TestPassing_WholeWay: connections to a host with passthrough reach the App's own TLS through a
// real tunnel. The gateway has no certificate of the host, and lists show how it is served.
func TestPassing_WholeWay(t *testing.T) {
	p := start(t, withPorts(nil))
	shop := p.registered("shop")
	host := controlapi.GivenHost("db", "n", shop.id.AgentID, portsDomain)
	pair, roots, err := selfsigned.Pair(host)
	require.NoError(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the App") })}
	await.Background(t, "the App", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		_ = srv.Serve(ln)
		return nil
	})
	handler := agentside.NewHandler(nil, zerolog.Nop())
	handler.Set([]agentside.Route{{Host: host, Protocol: gatewaywire.TLS, Port: 5432, Addresses: []string{ln.Addr().String()}}})
	tun, _ := shop.connect(func(cfg *tunnel.Config) { cfg.TakePublic = true })
	await.Background(t, "the agent's end", func(ctx context.Context) error {
		_ = handler.Serve(ctx, tun.Public(), time.Second)
		return nil
	})
	route := controlapi.Route{
		Host: host, Path: "/", PathType: "Prefix", Namespace: "n", App: "db", Service: "db", Port: 5432, Ready: true, Protocol: gatewaywire.TLS,
	}
	require.NoError(t, putRoutes(shop, route))
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.listeners.https.Addr().String())
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	await.Until(t, "the App is reached by its own certificate", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(r)
		if err != nil {
			return false
		}
		body, err := io.ReadAll(resp.Body)
		return err == nil && resp.Body.Close() == nil && string(body) == "the App"
	})
	list := p.routes("shop")
	require.Len(t, list, 1)
	assert.Equal(t, []string{"tls://" + host + ":443", gatewaywire.TLS}, []string{list[0].URL, list[0].Protocol})
	assert.True(t, list[0].Served, list[0].Reason)
	var state controlapi.RoutesState
	await.Until(t, "the host is ready", func() bool {
		state, err = shop.client.Routes(t.Context())
		return err == nil && len(state.Hosts) == 1 && state.Hosts[0].Reach == controlapi.ReachReady
	})
	assert.Empty(t, state.Hosts[0].Certificate)
	assert.Empty(t, state.Ports)

	second := route
	second.App, second.Service = "other", "other"
	require.Error(t, putRoutes(shop, route, second), "a host is one App's")
	second = route
	second.Protocol = ""
	require.Error(t, putRoutes(shop, route, second), "a host is carried in one way")
}
