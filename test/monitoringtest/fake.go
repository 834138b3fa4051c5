// Package monitoringtest has fakes of Prometheus, Loki and OpenCost: real HTTP servers with the
// paths and the answers of their documents. They evaluate no queries: a test says what is answered.
package monitoringtest

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The paths of the real components' APIs.
const (
	Query      = "/api/v1/query"
	QueryRange = "/api/v1/query_range"
	Alerts     = "/api/v1/alerts"
	LokiRange  = "/loki/api/v1/query_range"
	Allocation = "/allocation"
)

// Fake is a fake of one component.
type Fake struct {
	URL string

	mu      sync.Mutex
	asked   []url.Values
	answers map[string]func(url.Values) any
}

// Start starts a fake on the loopback interface. It answers 404 until it is told otherwise.
func Start(t testing.TB) *Fake {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt starts a fake at an address of this machine.
func StartAt(t testing.TB, host string) *Fake {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{answers: map[string]func(url.Values) any{}, URL: "http://" + ln.Addr().String()}
	s := httptest.NewUnstartedServer(f)
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	return f
}

// Answer sets what is answered at a path: JSON of what the function returns, or a Failure.
func (f *Fake) Answer(path string, answer func(url.Values) any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[path] = answer
}

// Asked returns the parameters of all requests so far.
func (f *Fake) Asked() []url.Values {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]url.Values{}, f.asked...)
}

// Failure is an answer with another status than 200.
type Failure struct {
	Status int
	Body   string
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Query())
	answer := f.answers[r.URL.Path]
	f.mu.Unlock()
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	switch body := answer(r.URL.Query()).(type) {
	case Failure:
		w.WriteHeader(body.Status)
		_, _ = w.Write([]byte(body.Body))
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body) // the caller is gone if this fails
	}
}

// Object is a JSON object.
type Object = map[string]any

// Series is a series as Prometheus answers it, with a value at each step that was asked for.
func Series(q url.Values, value string, labels map[string]string) Object {
	start, _ := strconv.ParseFloat(q.Get("start"), 64)
	end, _ := strconv.ParseFloat(q.Get("end"), 64)
	step, _ := strconv.ParseFloat(q.Get("step"), 64)
	values := [][]any{}
	for at := start; at <= end && step > 0; at += step {
		values = append(values, []any{at, value})
	}
	return Object{"metric": labels, "values": values}
}

// Matrix is Prometheus' answer to a range query.
func Matrix(series ...Object) Object {
	return Object{"status": "success", "data": Object{"resultType": "matrix", "result": append([]Object{}, series...)}}
}

// Vector is Prometheus' answer to an instant query.
func Vector(samples ...Object) Object {
	return Object{"status": "success", "data": Object{"resultType": "vector", "result": append([]Object{}, samples...)}}
}

// Firing is Prometheus' answer about alerts with these labels.
func Firing(labels ...map[string]string) Object {
	alerts := []Object{}
	for _, l := range labels {
		alerts = append(alerts, Object{
			"activeAt": "2026-07-04T20:27:12.60602144+02:00", "state": "firing", "value": "1e+00",
			"labels": l, "annotations": map[string]string{"summary": l["alertname"] + " happens"},
		})
	}
	return Object{"status": "success", "data": Object{"alerts": alerts}}
}

// Line is a line of a log.
type Line struct {
	At   time.Time
	Text string
}

// Log is a stream as Loki answers it: the lines from start up to the limit.
func Log(q url.Values, labels map[string]string, lines []Line) Object {
	start, _ := strconv.ParseInt(q.Get("start"), 10, 64)
	limit, _ := strconv.Atoi(q.Get("limit"))
	values := [][]string{}
	for _, l := range lines {
		if at := l.At.UnixNano(); at >= start && len(values) < limit {
			values = append(values, []string{strconv.FormatInt(at, 10), l.Text})
		}
	}
	return Object{"stream": labels, "values": values}
}

// Streams is Loki's answer to a range query.
func Streams(streams ...Object) Object {
	return Object{"status": "success", "data": Object{"resultType": "streams", "result": append([]Object{}, streams...)}}
}

// Allocations is OpenCost's answer about these names, which begin with a namespace.
func Allocations(names ...string) Object {
	set := Object{}
	for _, name := range names {
		namespace, _, _ := strings.Cut(name, "/")
		set[name] = Object{
			"name": name, "properties": Object{"cluster": "default-cluster", "namespace": namespace},
			"cpuCost": 1, "ramCost": 2, "pvCost": 3, "networkCost": 4, "loadBalancerCost": 0.5, "gpuCost": 0.25, "sharedCost": 0.25, "externalCost": 0,
			"totalCost": 11,
		}
	}
	return Object{"code": 200, "data": []Object{set}}
}
