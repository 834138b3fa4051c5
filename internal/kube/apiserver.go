package kube

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// APIServer is the way to the cluster's API server for what Runners ask of that itself. It
// implements runnerapi.KubernetesAPI.
type APIServer struct {
	given     *rest.Config
	namespace string

	once   sync.Once // nothing is made before somebody asks
	target *url.URL
	rt     http.RoundTripper
	err    error

	scopes scopes
}

var _ runnerapi.KubernetesAPI = (*APIServer)(nil)

// NewAPIServer takes the agent's own credentials, and the agent's namespace.
func NewAPIServer(given *rest.Config, namespace string) *APIServer {
	return &APIServer{given: rest.CopyConfig(given), namespace: namespace}
}

// OwnNamespace implements runnerapi.KubernetesAPI.
func (a *APIServer) OwnNamespace() string { return a.namespace }

// APIServer implements runnerapi.KubernetesAPI.
func (a *APIServer) APIServer() (*url.URL, http.RoundTripper, error) {
	a.once.Do(a.prepare)
	return a.target, a.rt, a.err
}

// prepare makes a transport of HTTP/1.1 alone: SPDY and WebSockets begin there, and each
// stream has a connection of its own, so that one which nobody reads takes neither the
// agent's memory nor anybody else's turn.
func (a *APIServer) prepare() {
	rc := a.given
	rc.NextProtos = []string{"http/1.1"}
	rc.Dial = dialSmall(rc.Dial)
	rc.DisableCompression = true // or the agent would unpack what its callers can unpack themselves
	if a.rt, a.err = rest.TransportFor(rc); a.err == nil {
		a.target, _, a.err = rest.DefaultServerUrlFor(rc)
	}
	if a.err != nil {
		a.err = fmt.Errorf("prepare the way to the API server: %w", a.err)
	}
}
