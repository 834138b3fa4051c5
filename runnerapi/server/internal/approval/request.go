// Package approval describes a command that the cluster's owner has to approve. The fingerprint,
// what the owner is shown, and what is carried out are all derived from one Request.
package approval

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// Request is all that decides what a command does.
type Request struct {
	Runner, Actor            string // who sends it; Actor acts as the Runner
	Command, Namespace, Name string
	As                       runnerapi.KubernetesIdentity // with which the Kubernetes API is used
	Method, Path             string
	Query                    url.Values
	Headers                  http.Header
	Body                     []byte

	kubernetes *runnerapi.KubernetesRequest
}

// readHeaders lists the headers that the calls of the Runner API read, and that are not about the
// connection or the attempt.
var readHeaders = []string{"Accept", "Cache-Control", "Content-Encoding", "Content-Type"}

// attemptHeaders lists headers that differ between two attempts to send the same command. They
// name the attempt or open the connection, and change nothing of what the command does.
var attemptHeaders = []string{
	"Connection", "Content-Length", "Idempotency-Key", "Origin", problem.RequestIDHeader, "Sec-Fetch-Site", "Sec-Websocket-Extensions", "Sec-Websocket-Key",
	"Sec-Websocket-Protocol", "Sec-Websocket-Version", "Traceparent", "Tracestate", "Upgrade", "User-Agent",
}

// sessionHeader is a number that kubectl makes up for each of its runs. It is not passed on with
// an approved command, because it would make each attempt another command.
const sessionHeader = "Kubectl-Session"

// New returns the command that a request asks for. body is the whole body.
func New(r *http.Request, i runnerapi.Intent, body []byte) (Request, error) {
	a := Request{
		Runner: i.Runner, Command: i.Command, Namespace: i.Namespace, Name: i.Name,
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.Query(), Headers: http.Header{}, Body: body, kubernetes: i.Kubernetes,
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		a.Actor = credentials.ActorOf(r.TLS.VerifiedChains[0][0])
	}
	if i.Kubernetes == nil {
		for _, name := range readHeaders {
			if values := r.Header.Values(name); len(values) > 0 {
				a.Headers[name] = values
			}
		}
		if i.Command == runnerapi.ApplyCall {
			a.Name = request.ApplyTarget(r).Name
		}
	} else {
		a.As, a.Name = i.Kubernetes.Grant.As, i.Kubernetes.Name
		a.Headers = kubernetes.PassedHeaders(r.Header)
		a.Headers.Del(sessionHeader)
		a.Headers.Del("Sec-Websocket-Key")
	}
	for _, values := range []map[string][]string{a.Query, a.Headers, {"": {a.Runner, a.Actor, a.Namespace, a.Name, a.As.User}}, {"": a.As.Groups}} {
		for name, texts := range values {
			if !utf8.ValidString(name) || slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) }) {
				return Request{}, problem.Errorf(problem.BadRequest, "send UTF-8", "a command that needs an approval has text that is not UTF-8 in its query or headers")
			}
		}
	}
	return a, nil
}

// Bytes returns the command in its one form. Two commands that differ have different bytes.
func (a Request) Bytes() ([]byte, error) { return json.Marshal(a) } // maps are sorted, and all texts are UTF-8

// Carry makes the request the one that was approved: it removes all that is not part of it.
func (a Request) Carry(r *http.Request) {
	kept := http.Header{}
	for _, name := range attemptHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			kept[name] = values
		}
	}
	for name, values := range r.Header { // the policy has judged these, and the grant contains them
		if strings.HasPrefix(name, "Impersonate-") {
			kept[name] = values
		}
	}
	maps.Copy(kept, a.Headers)
	r.Header, r.Trailer, r.TransferEncoding = kept, nil, nil
	r.URL.RawQuery = a.Query.Encode()
	r.Body, r.ContentLength = http.NoBody, 0
	if len(a.Body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(a.Body)), int64(len(a.Body))
	}
}
