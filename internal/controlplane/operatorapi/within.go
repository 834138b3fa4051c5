package operatorapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/hashicorp/go-retryablehttp"
)

type callerKey struct{}

// WithCaller returns a context for calls by Within. For each of them, identify returns the caller,
// as Config.Identify does for requests from outside.
func WithCaller(ctx context.Context, identify func(context.Context) (Caller, error)) context.Context {
	return context.WithValue(ctx, callerKey{}, identify)
}

// callerOf identifies the caller of a request. Requests from outside have nothing in their context.
func (s *server) callerOf(r *http.Request) (Caller, error) {
	if identify, within := r.Context().Value(callerKey{}).(func(context.Context) (Caller, error)); within {
		return identify(r.Context())
	}
	return s.identify(r)
}

// Within returns a target whose calls the server serves in this process, as it serves those from
// outside: with the same checks, limits and audit log. The caller is that of WithCaller.
func (s *Server) Within() *Client {
	client := retryablehttp.NewClient()
	client.Logger, client.RetryMax = nil, 0
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.HTTPClient = &http.Client{Transport: within{s.Handler}}
	return &Client{url: "https://within", http: client}
}

// within carries requests to a handler.
type within struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h within) RoundTrip(r *http.Request) (*http.Response, error) {
	// The router would continue with the route of the page's own request, and with its method.
	r = r.Clone(context.WithValue(r.Context(), chi.RouteCtxKey, (*chi.Context)(nil)))
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer func() { _ = r.Body.Close() }() // it is in memory
	a := &answer{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(a, r)
	return &http.Response{
		StatusCode: a.status, Header: a.header, Request: r, ContentLength: int64(a.body.Len()), Body: io.NopCloser(&a.body),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// answer is the answer to a request within the process.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(text []byte) (int, error) { return a.body.Write(text) }

// SetReadDeadline is for http.ResponseController: the body is here already.
func (a *answer) SetReadDeadline(time.Time) error { return nil }
