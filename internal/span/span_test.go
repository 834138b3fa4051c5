package span_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

func recorded(t *testing.T) (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	t.Helper()
	r := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)), r
}

func TestTrace_OverHTTP(t *testing.T) {
	provider, ended := recorded(t)
	ctx, done := span.Begin(t.Context(), provider, "deploy")
	calling, answered := span.Calling(ctx, func() string { return "put-app" }, "PUT")
	out := httptest.NewRequestWithContext(calling, http.MethodPut, "/v1/hidden?secret=canary", nil)
	span.Inject(calling, out.Header)

	// The other side knows the header alone.
	in := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v1/hidden?secret=canary", nil)
	in.Header = out.Header.Clone()
	in, served := span.Served(in, provider)
	assert.Equal(t, span.TraceID(ctx), span.TraceID(in.Context()))
	served("put-app", "/v1/apps/{name}", 503)
	answered(503, errors.New("canary"))
	done(errors.New("canary"))

	spans := ended.Ended()
	require.Len(t, spans, 3)
	server, client, root := spans[0], spans[1], spans[2]
	assert.Equal(t, client.SpanContext().SpanID(), server.Parent().SpanID())
	assert.Equal(t, root.SpanContext().SpanID(), client.Parent().SpanID())
	assert.False(t, root.Parent().IsValid())
	// The names are those of the semantic conventions of HTTP spans.
	common := map[attribute.Key]string{"http.request.method": "PUT", "http.response.status_code": "503", "error.type": "503"}
	assert.Equal(t, common, attributes(client))
	common["http.route"] = "/v1/apps/{name}"
	assert.Equal(t, common, attributes(server))
	for _, s := range spans {
		assert.Equal(t, codes.Error, s.Status().Code)
		assert.Empty(t, s.Status().Description)
		for _, a := range s.Attributes() {
			assert.NotContains(t, a.Value.String(), "canary")
			assert.NotContains(t, a.Value.String(), "hidden")
		}
	}
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.String()
	}
	return all
}

// TestCalling_ErrorType: a call that failed says how, in one word.
func TestCalling_ErrorType(t *testing.T) {
	for want, c := range map[string]struct {
		status int
		err    error
	}{"": {200, nil}, "unanswered": {0, errors.New("canary")}, "_OTHER": {200, errors.New("canary")}, "404": {404, nil}} {
		provider, ended := recorded(t)
		ctx, done := span.Begin(t.Context(), provider, "deploy")
		_, answered := span.Calling(ctx, func() string { return "get-app" }, "GET")
		answered(c.status, c.err)
		done(nil)
		assert.Equal(t, want, attributes(ended.Ended()[0])["error.type"])
	}
}

func TestTrace_NoProvider(t *testing.T) {
	ctx, done := span.Begin(t.Context(), nil, "x")
	assert.Equal(t, t.Context(), ctx)
	done(nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	same, served := span.Served(r, nil)
	assert.Same(t, r, same)
	served("x", "", 200)
	ctx, answered := span.Calling(t.Context(), nil, "GET")
	assert.Equal(t, t.Context(), ctx)
	answered(200, nil)
	header := http.Header{}
	span.Inject(ctx, header)
	assert.Empty(t, header)
	assert.Empty(t, span.TraceID(ctx))
}

func TestServed_OmitsUntrustedText(t *testing.T) {
	provider, ended := recorded(t)
	r := httptest.NewRequestWithContext(t.Context(), "CANARY", "/", nil)
	r.Header.Set("traceparent", "garbage")
	_, served := span.Served(r, provider)
	served("other", "", 405)
	require.Len(t, ended.Ended(), 1)
	assert.False(t, ended.Ended()[0].Parent().IsValid())
	for _, a := range ended.Ended()[0].Attributes() {
		assert.NotContains(t, a.Value.String(), "CANARY")
	}
}

// FuzzServed: any header is taken or left, and none makes another trace's ID invalid.
func FuzzServed(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		r.Header["Traceparent"], r.Header["Tracestate"] = []string{parent}, []string{state}
		r, served := span.Served(r, sdktrace.NewTracerProvider())
		assert.True(t, trace.SpanContextFromContext(r.Context()).IsValid())
		served("x", "", 200)
	})
}
