package gateway_test

import (
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const (
	visitorsTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	visitorsSpan  = "00f067aa0ba902b7"
	traceparent   = "00-" + visitorsTrace + "-" + visitorsSpan + "-01"
)

// traced starts a world that makes spans, and returns what a backend gets as traceparent.
func traced(t *testing.T, header string) (got string, spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	ended := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))
	w := newWorldWith(t, agentside.NewHandler(provider, zerolog.Nop()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Traceparent")
	}), func(c *gateway.Config) { c.Tracer = provider })
	visit(t, w, header)
	await.Until(t, "both spans have ended", func() bool { return len(ended.Ended()) == 2 })
	spans = ended.Ended()
	if spans[0].Parent().SpanID() != spans[1].SpanContext().SpanID() {
		spans[0], spans[1] = spans[1], spans[0]
	}
	return got, spans
}

func visit(t *testing.T, w *world, header string) {
	t.Helper()
	r := request(t, http.MethodGet, "https://"+host+"/hidden?secret=canary", nil)
	if header != "" {
		r.Header.Set("Traceparent", header)
	}
	resp, _ := do(t, w.client(true), r)
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestTrace_PassesGateway(t *testing.T) {
	got, spans := traced(t, traceparent)
	agent, front := spans[0], spans[1]
	assert.Equal(t, visitorsSpan, front.Parent().SpanID().String())
	assert.Equal(t, front.SpanContext().SpanID(), agent.Parent().SpanID())
	assert.Equal(t, "00-"+visitorsTrace+"-"+agent.SpanContext().SpanID().String()+"-01", got)
	for _, s := range spans {
		assert.Equal(t, "public request", s.Name())
		assert.Equal(t, visitorsTrace, s.SpanContext().TraceID().String())
		for _, a := range s.Attributes() {
			assert.NotContains(t, a.Value.String(), "canary")
			assert.NotContains(t, a.Value.String(), "hidden")
		}
	}

	got, spans = traced(t, "")
	assert.False(t, spans[1].Parent().IsValid(), "a separate trace")
	assert.Contains(t, got, spans[0].SpanContext().TraceID().String())
}

func TestTrace_DisabledKeepsHeader(t *testing.T) {
	for _, header := range []string{traceparent, ""} {
		got := make(chan string, 1)
		w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Traceparent") }))
		visit(t, w, header)
		assert.Equal(t, header, await.Receive(t, got, "the backend's header"))
	}
}
