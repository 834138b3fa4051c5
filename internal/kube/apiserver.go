package kube

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// APIServer gives access to the cluster's API server for requests of Runners. It implements
// backend.KubernetesAPI.
type APIServer struct {
	given     *rest.Config
	namespace string

	once   sync.Once // nothing is created before the first request
	target *url.URL
	rt     http.RoundTripper
	err    error

	scopes scopes
}

var _ backend.KubernetesAPI = (*APIServer)(nil)

// NewAPIServer takes the agent's own credentials and namespace.
func NewAPIServer(given *rest.Config, namespace string) *APIServer {
	return &APIServer{given: rest.CopyConfig(given), namespace: namespace}
}

// OwnNamespace implements backend.KubernetesAPI.
func (a *APIServer) OwnNamespace() string { return a.namespace }

// APIServer implements backend.KubernetesAPI.
func (a *APIServer) APIServer() (*url.URL, http.RoundTripper, error) {
	a.once.Do(a.prepare)
	return a.target, a.rt, a.err
}

// prepare creates a transport for HTTP/1.1 only: SPDY and WebSockets start from that. Each stream
// has a separate connection, so that an unread stream takes neither the agent's memory nor
// another stream's window.
func (a *APIServer) prepare() {
	rc := a.given
	rc.NextProtos = []string{"http/1.1"}
	rc.Dial = dialSmall(rc.Dial)
	rc.DisableCompression = true // callers can decompress themselves
	if a.rt, a.err = rest.TransportFor(rc); a.err == nil {
		a.target, _, a.err = rest.DefaultServerUrlFor(rc)
	}
	if a.err != nil {
		a.err = fmt.Errorf("prepare the way to the API server: %w", a.err)
	}
}
