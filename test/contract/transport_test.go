package contract

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAround_FailsViolatingCall: the others pass.
func TestAround_FailsViolatingCall(t *testing.T) {
	body := `{"items":[]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "a")
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	var reported []error
	client := &http.Client{Transport: committed(t).Around(http.DefaultTransport, func(err error) { reported = append(reported, err) })}
	get := func(path string, read bool) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		if !read {
			return "", nil
		}
		got, err := io.ReadAll(resp.Body)
		return string(got), err
	}
	got, err := get("/v1/namespaces", true)
	require.NoError(t, err)
	assert.Equal(t, body, got)
	_, err = get("/healthz", true)
	require.NoError(t, err, "it is not a call")
	assert.Empty(t, reported)

	body = `{"items":[{}]}`
	_, err = get("/v1/namespaces", true)
	var violation *ViolationError
	require.ErrorAs(t, err, &violation)
	assert.Contains(t, err.Error(), "/v1/namespaces")
	assert.Equal(t, []error{err}, reported)
	_, err = get("/v1/nothing", false)
	require.NoError(t, err)
	assert.Len(t, reported, 2, "also when nobody reads it")
}
