// Package otlptest is a fake of an OpenTelemetry collector: a real server that decodes real OTLP
// over HTTP or gRPC, and keeps the spans in memory for a test.
package otlptest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// maxBody bounds what is taken.
const maxBody = 16 << 20

// Span is a span with the program that it came from, and that program's attributes.
type Span struct {
	*trace.Span
	Service  string
	Resource []*common.KeyValue
}

// Collector accepts spans until the test ends.
type Collector struct {
	collector.UnimplementedTraceServiceServer

	URL string

	mu    sync.Mutex
	spans []Span
	raw   []byte
	bad   []string
}

// New starts one that speaks HTTP, and points the standard variables at it.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.settle(t, server.URL)
	return c
}

// NewGRPC starts one that speaks gRPC, and points the standard variables at it.
func NewGRPC(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxBody))
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // Stop ends it
	t.Cleanup(server.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	c.settle(t, "http://"+l.Addr().String()) // the scheme for a connection without TLS, in gRPC too
	return c
}

func (c *Collector) settle(t *testing.T, url string) {
	t.Helper()
	c.URL = url
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // milliseconds
}

// Export implements the collector's gRPC service.
func (c *Collector) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	body, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(body, request)
	return &collector.ExportTraceServiceResponse{}, nil
}

// take keeps the spans of a request. The caller holds the lock.
func (c *Collector) take(body []byte, request *collector.ExportTraceServiceRequest) {
	c.raw = append(c.raw, body...)
	for _, of := range request.GetResourceSpans() {
		about := of.GetResource().GetAttributes()
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{s, value(about, "service.name"), about})
			}
		}
	}
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	request := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.bad = append(c.bad, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.take(body, request)
	w.Header().Set("Content-Type", "application/x-protobuf")
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{}) // an empty message cannot fail
	_, _ = w.Write(answer)                                              // the exporter is gone if this fails
}

// Spans returns those that have come.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Bad returns the requests that were not OTLP.
func (c *Collector) Bad() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bad)
}

// Holds reports whether anything that has arrived contains the text.
func (c *Collector) Holds(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(string(c.raw), text)
}

// Find returns the first span of that name in a trace; of any trace when that is nil.
func (c *Collector) Find(traceID []byte, name string) (Span, bool) {
	for _, s := range c.Spans() {
		if s.Name == name && (traceID == nil || string(traceID) == string(s.TraceId)) {
			return s, true
		}
	}
	return Span{}, false
}

// Value returns an attribute's text.
func (s Span) Value(key string) string { return value(s.Attributes, key) }

// About returns the text of an attribute of the program.
func (s Span) About(key string) string { return value(s.Resource, key) }

func value(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
