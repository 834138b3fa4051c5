package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// BenchmarkRequest compares 1 KiB requests through the tunnel with the same over a direct
// TLS connection.
func BenchmarkRequest(b *testing.B) {
	p := newPlane(b)
	p.agent("a1")
	clients := map[string]*http.Client{
		"direct": directClient(b, p),
		"tunnel": p.client("a1", http1),
	}
	body := strings.Repeat("x", 1<<10)
	for _, parallel := range []int{1, 25} {
		for _, path := range []string{"direct", "tunnel"} {
			b.Run(fmt.Sprintf("%s/%d", path, parallel), func(b *testing.B) {
				b.SetParallelism(parallel)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						_, err := ask(context.Background(), clients[path], body)
						assert.NoError(b, err)
					}
				})
			})
		}
	}
}

func directClient(b *testing.B, p *plane) *http.Client {
	b.Helper()
	cfg := p.ca.Server()
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	ln, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	srv := &http.Server{Handler: echo{}, ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(ln, cfg)) }()
	b.Cleanup(func() { _ = srv.Close(); <-served })
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&tls.Dialer{Config: p.ca.Agent("runner")}).DialContext(ctx, network, ln.Addr().String())
		},
		MaxIdleConnsPerHost: 256,
	}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
