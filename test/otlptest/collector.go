// Package otlptest is a fake of an OpenTelemetry collector: a real HTTP server that decodes real
// OTLP, and keeps the spans in memory for a test.
package otlptest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxBody bounds what is taken.
const maxBody = 16 << 20

// Span is a span with the program that it came from.
type Span struct {
	*trace.Span
	Service string
}

// Collector accepts spans until the test ends.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []Span
	raw   []byte
	bad   []string
}

// New starts one and points the standard variables at it.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // milliseconds
	return c
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
	c.raw = append(c.raw, body...)
	for _, of := range request.GetResourceSpans() {
		service := value(of.GetResource().GetAttributes(), "service.name")
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{s, service})
			}
		}
	}
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

// Bad returns the requests that were no OTLP.
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

func value(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
