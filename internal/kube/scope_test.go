package kube_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
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
