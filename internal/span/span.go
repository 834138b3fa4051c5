// Package span creates the spans of our HTTP wires with OpenTelemetry's API only: without its SDK,
// and without a global. The program decides where spans go (internal/tracing). Here, a server call
// gets a provider, and everything that results from the call finds it in its context. Without a
// provider there are no spans and no costs.
//
// Spans contain only what is listed here: which call, which verb, which status. They contain no
// path, query, header, body or error text, because traces leave the machine. This is why the
// package does not use otelhttp, which records URLs and addresses.
//
// It is a leaf package: wires, parties and programs may import it.
package span

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/pipeops/pipeops-vm-agent"

// KubernetesResource is the resource of a request to the Kubernetes API, with its subresource. The
// semantic conventions have names of objects alone (k8s.pod.name), and all other attributes here.
const KubernetesResource = attribute.Key("pipeops.kubernetes.resource")

// unanswered is the error.type of a call without a response.
const unanswered = "unanswered"

// wire is W3C Trace Context. It excludes baggage, which could carry anything.
var wire propagation.TraceContext

// TraceID returns the ID of the context's trace, or an empty string. It is for log lines.
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}

// Inject sends the context's trace, if any, to a server.
func Inject(ctx context.Context, header http.Header) {
	wire.Inject(ctx, propagation.HeaderCarrier(header))
}

// Begin starts a span of our own, the first of its trace unless the context belongs to one. A nil
// provider creates none.
func Begin(ctx context.Context, p trace.TracerProvider, name string) (context.Context, func(error)) {
	if p == nil {
		return ctx, func(error) {}
	}
	ctx, s := p.Tracer(scope).Start(ctx, name)
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, "") // without the text, which may quote anything
		}
		s.End()
	}
}

// Served starts the span of a received call, as a child of its caller's span if the call carries
// one. The returned function ends it, with the call's name, its route (http.route) if there is one,
// and its status. A nil provider creates none.
func Served(r *http.Request, p trace.TracerProvider) (*http.Request, func(name, route string, status int)) {
	if p == nil {
		return r, func(string, string, int) {}
	}
	ctx := wire.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, s := p.Tracer(scope).Start(ctx, r.Proto, trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), func(name, route string, status int) {
		s.SetName(name)
		s.SetAttributes(method(r.Method))
		if route != "" {
			s.SetAttributes(semconv.HTTPRoute(route))
		}
		answered(s, status, http.StatusInternalServerError)
		s.End()
	}
}

// Passed starts the span of a request that is passed on to a server which belongs to others, as a
// child of the caller's span. The server learns the trace. The returned function ends the span. A
// nil provider creates none, and leaves the caller's trace as it came.
func Passed(r *http.Request, p trace.TracerProvider, name string) (*http.Request, func(status int)) {
	if p == nil {
		return r, func(int) {}
	}
	r, served := Served(r, p)
	header := r.Header.Clone()
	r.Header = header
	Inject(r.Context(), header)
	return r, func(status int) { served(name, "", status) }
}

// Calling starts the span of an outgoing call, in the context's trace and with its provider. If
// there is no trace, it starts no span and does not call name.
func Calling(ctx context.Context, name func() string, verb string, more ...attribute.KeyValue) (context.Context, func(status int, err error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(int, error) {}
	}
	ctx, s := parent.TracerProvider().Tracer(scope).Start(ctx, name(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(more, method(verb))...))
	return ctx, func(status int, err error) {
		answered(s, status, http.StatusBadRequest)
		switch {
		case err == nil || status >= http.StatusBadRequest:
		case status == 0:
			failed(s, unanswered)
		default: // the answer broke off
			failed(s, semconv.ErrorTypeOther.Value.AsString())
		}
		s.End()
	}
}

// answered records a status, which is an error from that status on: for a server from 500, for a
// client from 400, as the semantic conventions of HTTP have it.
func answered(s trace.Span, status, errors int) {
	if status != 0 {
		s.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	if status >= errors {
		failed(s, strconv.Itoa(status))
	}
}

func failed(s trace.Span, kind string) {
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, "")
}

// method returns an HTTP method, or a fixed word for an unknown one, which any client can send.
func method(m string) attribute.KeyValue {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return semconv.HTTPRequestMethodKey.String(m)
	}
	return semconv.HTTPRequestMethodOther
}

// Later is a trace that continues after its call has been answered.
type Later struct {
	provider trace.TracerProvider
	parent   trace.SpanContext
}

// ToGoOn returns the context's trace if it is recorded here.
func ToGoOn(ctx context.Context) (Later, bool) {
	s := trace.SpanFromContext(ctx)
	return Later{s.TracerProvider(), s.SpanContext()}, s.IsRecording()
}

// Begin starts a span in it.
func (l Later) Begin(ctx context.Context, name string) (context.Context, func(error)) {
	return Begin(trace.ContextWithSpanContext(ctx, l.parent), l.provider, name)
}
