package kube_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestScope_MatchesAPIServer expects few requests for them.
func TestScope_MatchesAPIServer(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/api/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true},{"name":"nodes","namespaced":false}]}`))
		case "/apis/broken.example.com/v1":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	api := kube.NewAPIServer(&rest.Config{Host: server.URL}, "pipeops")
	for range 2 {
		for resource, want := range map[string]bool{"pods": true, "nodes": false} {
			got, err := api.Namespaced(t.Context(), "", "v1", resource)
			require.NoError(t, err)
			assert.Equal(t, want, got, resource)
		}
	}
	assert.EqualValues(t, 1, asked.Load())
	for _, unknown := range [][]string{{"", "new"}, {"none.example.com", "things"}} {
		got, err := api.Namespaced(t.Context(), unknown[0], "v1", unknown[1])
		require.NoError(t, err)
		assert.True(t, got, "what is not listed may have a namespace: %v", unknown)
	}
	_, err := api.Namespaced(t.Context(), "broken.example.com", "v1", "things")
	require.Error(t, err, "who cannot be asked lets nothing through")
}

// TestReadBuffer_BoundsUnread has a reader that was fast before. What the API server could send
// until it had to wait is in the agent's memory.
func TestReadBuffer_BoundsUnread(t *testing.T) {
	const read = 64 << 20
	sent := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rc, all := http.NewResponseController(w), 0
		for err := error(nil); err == nil && all < 2*read; {
			patience := time.Minute
			if all >= read { // from here on nobody reads
				patience = time.Second
			}
			_ = rc.SetWriteDeadline(time.Now().Add(patience))
			var n int
			n, err = w.Write(make([]byte, 16<<10))
			all += n
		}
		sent <- all
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10) // the API server's own
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	target, transport, err := kube.NewAPIServer(&rest.Config{Host: server.URL}, "pipeops").APIServer()
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target.String(), nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	_, err = io.CopyN(io.Discard, resp.Body, read)
	require.NoError(t, err)
	assert.Less(t, await.Receive(t, sent, "the end of the sending")-read, 512<<10)
}
