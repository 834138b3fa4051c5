package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestKubernetesClient_LimitsReadAhead opens a stream and reads nothing of it: what the API server
// can send until it has to wait is in the agent's memory.
func TestKubernetesClient_LimitsReadAhead(t *testing.T) {
	sent := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		rc, all := http.NewResponseController(w), 0
		for err := error(nil); err == nil && all < 16<<20; {
			patience := time.Minute
			if all >= ahead { // it waits for the reader
				patience = 100 * time.Millisecond
			}
			_ = rc.SetWriteDeadline(time.Now().Add(patience))
			var n int
			if n, err = w.Write(make([]byte, 16<<10)); err == nil {
				err = rc.Flush()
			}
			all += n
		}
		sent <- all
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	seen := &clusterSeen{now: time.Now}
	rc := seen.watched(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	client, err := rest.HTTPClientFor(rc)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	all := await.Receive(t, sent, "the end of the sending")
	assert.GreaterOrEqual(t, all, ahead)
	assert.Less(t, all, 2*ahead)
}
