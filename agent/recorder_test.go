package agent_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// recorder notes what the agent asks the Kubernetes API, and for which call of
// a Runner: the request's context has the call's Request-Id, and the agent's
// log tells which call that was.
type recorder struct {
	mu    sync.Mutex
	uses  map[string]map[use]bool // by Request-Id; under "" what no call asked for
	calls map[string]string       // METHOD /route by Request-Id
	said  bytes.Buffer            // what the agent complained of
}

// use is one kind of request.
type use struct {
	verb, resource string // the resource with its group, as in deployments.apps or pods/log
	namespace      string
	name           string
}

func newRecorder() *recorder {
	return &recorder{uses: map[string]map[use]bool{}, calls: map[string]string{}}
}

// config is rc with the recorder between.
func (r *recorder) config(rc *rest.Config) *rest.Config {
	out := rest.CopyConfig(rc)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper { return recording{r, next} })
	return out
}

type recording struct {
	*recorder
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r recording) RoundTrip(req *http.Request) (*http.Response, error) {
	uses := usesOf(req)
	if who := req.Header.Get("Impersonate-User"); who != "" && !strings.HasPrefix(who, "system:serviceaccount:") { // which is how the test is the agent
		uses = []use{{verb: "impersonate", resource: "users"}, {verb: "impersonate", resource: "groups"}}
	}
	for _, u := range uses {
		r.note(problem.RequestID(req.Context()), u)
	}
	return r.next.RoundTrip(req)
}

func (r *recorder) note(id string, u use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uses[id] == nil {
		r.uses[id] = map[use]bool{}
	}
	r.uses[id][u] = true
}

// Write takes the agent's log.
func (r *recorder) Write(p []byte) (int, error) {
	var line struct{ Level, Message, Method, Route, RequestID string }
	if err := json.Unmarshal(p, &line); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if line.Message == "runner API call" {
		r.calls[line.RequestID] = line.Method + " " + strings.Replace(line.Route, "/*", "/{path}", 1)
	}
	if line.Level == "warn" || line.Level == "error" {
		r.said.Write(p)
	}
	return len(p), nil
}

// complaints are the agent's warnings and errors.
func (r *recorder) complaints() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}

// of are the uses of a call, or of no call.
func (r *recorder) of(call string) []use {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[use]bool{}
	for id, uses := range r.uses {
		if r.calls[id] == call {
			for u := range uses {
				all[u] = true
			}
		}
	}
	out := make([]use, 0, len(all))
	for u := range all {
		out = append(out, u)
	}
	return out
}

// usesOf reads a request's method and path. What is not a request for a resource,
// as the question for the cluster's version, needs no right of the agent's.
func usesOf(req *http.Request) []use {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return nil
	}
	u := use{}
	if len(parts) > 2 && parts[0] == "namespaces" {
		u.namespace, parts = parts[1], parts[2:]
	}
	u.resource = parts[0]
	if group != "" {
		u.resource += "." + group
	}
	if len(parts) > 1 {
		u.name = parts[1]
	}
	if len(parts) > 2 {
		u.resource += "/" + parts[2]
	}
	u.verb = verbOf(req, u.name)
	if req.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) && !strings.Contains(u.resource, "/") {
		created := u // where there is none: the API server asks for both rights
		created.verb = "create"
		return []use{u, created}
	}
	return []use{u}
}

func verbOf(req *http.Request, name string) string {
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch query := req.URL.Query().Get("watch"); {
	case query == "true" || query == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}
