package contract

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func committed(t testing.TB) *Document {
	t.Helper()
	raw, err := os.ReadFile("../../docs/openapi.json")
	require.NoError(t, err)
	d, err := Read(raw)
	require.NoError(t, err)
	return d
}

// TestDocument_CheckFindsViolations breaks one thing of a good answer at a time.
func TestDocument_CheckFindsViolations(t *testing.T) {
	d := committed(t)
	good := func() Answer {
		return Answer{
			Method: "PUT", Path: "/v1/namespaces/production/secrets/s", Status: 200, Body: []byte(`{"namespace":"production","name":"s","type":"Opaque","keys":[],"digest":"d"}`),
			Header: http.Header{"Request-Id": {"a"}, "Operation-Id": {"b"}, "Location": {"/v1/operations/b"}, "Content-Type": {"application/json"}},
		}
	}
	require.NoError(t, d.Check(good()))
	for name, change := range map[string]func(*Answer){
		"another status":   func(a *Answer) { a.Status = 418 },
		"no request ID":    func(a *Answer) { a.Header.Del("Request-Id") },
		"no operation":     func(a *Answer) { a.Header.Del("Operation-Id") },
		"another location": func(a *Answer) { a.Header.Set("Location", "/") },
		"another type":     func(a *Answer) { a.Header.Set("Content-Type", "text/html") },
		"no JSON":          func(a *Answer) { a.Body = []byte("{") },
		"a field too many": func(a *Answer) {
			a.Body = []byte(`{"namespace":"production","name":"s","type":"Opaque","keys":[],"digest":"d","x":1}`)
		},
		"a field too few": func(a *Answer) { a.Body = []byte(`{}`) },
		"null": func(a *Answer) {
			a.Body = []byte(`{"namespace":"production","name":"s","type":"Opaque","keys":null,"digest":"d"}`)
		},
		"a time to wait that is none": func(a *Answer) {
			a.Status, a.Body = 503, []byte(`{"title":"t","status":503,"code":"unavailable","detail":"d"}`)
			a.Header = http.Header{"Request-Id": {"a"}, "Content-Type": {"application/problem+json"}, "Retry-After": {"0.5"}}
		},
		"too many without a time": func(a *Answer) {
			a.Status, a.Body = 429, []byte(`{"title":"t","status":429,"code":"too_many_requests","detail":"d"}`)
			a.Header = http.Header{"Request-Id": {"a"}, "Content-Type": {"application/problem+json"}}
		},
		"a time where there is none": func(a *Answer) { a.Header.Set("Retry-After", "1") },
		"a field of another form": func(a *Answer) {
			a.Status, a.Body = 422, []byte(`{"title":"t","status":422,"code":"invalid","detail":"d","field":"document 2, line 6"}`)
			a.Header = http.Header{"Request-Id": {"a"}, "Content-Type": {"application/problem+json"}}
		},
		"a problem of the Kubernetes API": func(a *Answer) {
			a.Path, a.Status, a.Body = "/v1/kubernetes/api", 403, []byte(`{"title":"t","status":403,"code":"forbidden","detail":"d"}`)
			a.Header.Set("Content-Type", "application/problem+json")
		},
		"a Status of another status": func(a *Answer) {
			a.Path, a.Status, a.Body = "/v1/kubernetes/api", 403, []byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"m","code":404}`)
		},
		"text of the Kubernetes API": func(a *Answer) {
			a.Path, a.Status, a.Body = "/v1/kubernetes/api/v1/namespaces/a/pods", 403, []byte("PipeOps agent: no")
			a.Header.Set("Content-Type", "text/plain; charset=utf-8")
		},
		"a body of HEAD": func(a *Answer) { a.Method = "HEAD" },
		"no call":        func(a *Answer) { a.Path = "/v1/nothing" },
	} {
		answer := good()
		change(&answer)
		assert.Error(t, d.Check(answer), name)
	}
}
