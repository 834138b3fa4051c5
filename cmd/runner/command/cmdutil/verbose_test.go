package cmdutil

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestVerbose_HidesSecrets puts a secret wherever a call can have one.
func TestVerbose_HidesSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which a call takes no time
		answer := transport(func(*http.Request) (*http.Response, error) {
			h := http.Header{"Set-Cookie": {"s3cret"}, "X-Token": {"s3cret"}, "Request-Id": {"r-1"}, "Retry-After": {"5\x1b[2J"}}
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: h, Body: io.NopCloser(strings.NewReader("s3cret"))}, nil
		})
		for level, want := range map[int]string{
			0: "",
			1: "PUT a1.agents/v1/x%20y: 503 in 0s, request r-1\n",
			2: "PUT a1.agents/v1/x%20y: 503 in 0s, request r-1\n" +
				"  > Authorization: (not shown)\n  > Idempotency-Key: k-1\n" +
				"  < Request-Id: r-1\n  < Retry-After: 5 [2J\n  < Set-Cookie: (not shown)\n  < X-Token: (not shown)\n",
		} {
			var said bytes.Buffer
			a := &CLI{Streams: Streams{Err: &said}, Verbose: level}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://ci:s3cret@a1.agents/v1/x%20y?token=s3cret", strings.NewReader("s3cret"))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer s3cret")
			r.Header.Set("Idempotency-Key", "k-1")
			resp, err := a.inspected(answer).RoundTrip(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, errors.Join(err, resp.Body.Close()))
			assert.Equal(t, "s3cret", string(body), "the body is the caller's to read")
			assert.Equal(t, want, said.String())
		}
	})
}

func TestVerbose_PrintsUnansweredCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		a := &CLI{Streams: Streams{Err: &said}, Verbose: 1}
		refused := errors.New("connection refused")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a1.agents/v1/apps", nil)
		require.NoError(t, err)
		_, err = a.inspected(transport(func(*http.Request) (*http.Response, error) { return nil, refused })).RoundTrip(r)
		require.ErrorIs(t, err, refused)
		assert.Equal(t, "GET a1.agents/v1/apps: no response in 0s: connection refused\n", said.String())
	})
}
