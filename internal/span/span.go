// Package span makes the spans of our HTTP wires with OpenTelemetry's API alone: without
// its SDK, and without a global. Where spans go is said by whoever runs a program
// (internal/tracing); here a call to a server is given a provider, and what comes of that
// call finds it in its context. No provider, no span, no cost.
//
// Spans tell what is listed here and nothing else: which call, which verb, which status.
// No path, query, header, body or error text, as traces leave the machine. This is why it
// is not otelhttp, which tells of URLs and addresses.
//
// It is a leaf: wires, parties and programs may import it.
package span

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/pipeops/pipeops-vm-agent"

// The attributes, by OpenTelemetry's semantic conventions where they have a name for it.
const (
	keyMethod = attribute.Key("http.request.method")
	keyStatus = attribute.Key("http.response.status_code")
	keyError  = attribute.Key("error.type")
)

// wire is W3C Trace Context. No baggage, which could carry anything.
var wire propagation.TraceContext

// TraceID is the trace's that the context belongs to, or empty: for log lines.
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}

// Inject tells a server of the trace that the context belongs to, if to any.
func Inject(ctx context.Context, header http.Header) {
	wire.Inject(ctx, propagation.HeaderCarrier(header))
}

// Begin starts a span of our own, the first of its trace unless the context belongs to one.
// A nil provider makes none.
func Begin(ctx context.Context, p trace.TracerProvider, name string) (context.Context, func(error)) {
	if p == nil {
		return ctx, func(error) {}
	}
	ctx, s := p.Tracer(scope).Start(ctx, name)
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, "") // not the text: it may quote anything
		}
		s.End()
	}
}

// Served starts the span of a call that has come, under its caller's if that told of one.
// The function ends it: with what the call turned out to be, and its status. A nil
// provider makes none.
func Served(r *http.Request, p trace.TracerProvider) (*http.Request, func(name string, status int)) {
	if p == nil {
		return r, func(string, int) {}
	}
	ctx := wire.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, s := p.Tracer(scope).Start(ctx, r.Proto, trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), func(name string, status int) {
		s.SetName(name)
		s.SetAttributes(keyMethod.String(method(r.Method)), keyStatus.Int(status))
		if status >= http.StatusInternalServerError {
			s.SetStatus(codes.Error, "")
		}
		s.End()
	}
}

// Calling starts the span of a call that is about to go out, in the trace that the context
// belongs to and with its provider; if it belongs to none there is no span, and nobody asks
// for its name.
func Calling(ctx context.Context, name func() string, verb string, more ...attribute.KeyValue) (context.Context, func(status int, err error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(int, error) {}
	}
	ctx, s := parent.TracerProvider().Tracer(scope).Start(ctx, name(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(more, keyMethod.String(method(verb)))...))
	return ctx, func(status int, err error) {
		if status != 0 {
			s.SetAttributes(keyStatus.Int(status))
		}
		if err != nil && status == 0 {
			s.SetAttributes(keyError.String("unanswered"))
		}
		if err != nil || status >= http.StatusBadRequest {
			s.SetStatus(codes.Error, "")
		}
		s.End()
	}
}

// method is a method of HTTP, or a word for what is none: strangers choose it.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "_OTHER"
}

// Later is a trace that goes on after the call has been answered that it came with.
type Later struct {
	provider trace.TracerProvider
	parent   trace.SpanContext
}

// ToGoOn is the trace that the context belongs to, if it is one that is made here.
func ToGoOn(ctx context.Context) (Later, bool) {
	s := trace.SpanFromContext(ctx)
	return Later{s.TracerProvider(), s.SpanContext()}, s.IsRecording()
}

// Begin starts a span in it.
func (l Later) Begin(ctx context.Context, name string) (context.Context, func(error)) {
	return Begin(trace.ContextWithSpanContext(ctx, l.parent), l.provider, name)
}
