package contract

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
	require.NoError(t, err, "it is no call")
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

// pieces is a body that arrives in pieces, each of which one Read takes.
type pieces []string

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; (*p)[0] == "" {
		*p = (*p)[1:]
	}
	return n, nil
}

func (*pieces) Close() error { return nil }

// TestAround_LongAnswer: a short piece behind one that was not kept whole is not
// taken for what comes next.
func TestAround_LongAnswer(t *testing.T) {
	kept := strings.Repeat("a", maxRecorded-10)
	r := &recorder{ReadCloser: &pieces{kept, strings.Repeat("b", 100), "c"}, checked: true}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, maxRecorded))
	require.NoError(t, err)
	assert.True(t, r.answer.Cut)
	assert.True(t, r.read.String() == kept+strings.Repeat("b", 10), "the beginning, without a gap")
}
