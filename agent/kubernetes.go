package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

// clusterPatience is how long the Kubernetes API may be away before the agent is not ready: a
// replica requests the lease every second, so an outage is noticed soon.
const clusterPatience = 5 * time.Second

// clusterSeen records from other requests whether the Kubernetes API responds. It makes no requests
// of its own.
type clusterSeen struct {
	now   func() time.Time
	mu    sync.Mutex
	since time.Time // it has not answered since; zero while it does
}

// watched returns a copy of a client's configuration whose requests are seen, and become spans when
// they are part of a trace.
func (s *clusterSeen) watched(given *rest.Config) *rest.Config {
	rc := rest.CopyConfig(given)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		bound(next)
		return seenTransport{next, s}
	})
	return rc
}

// ahead is how far the API server may be ahead of the reader of one of its streams. What it has
// sent is in memory. With HTTP/2's usual 4 MiB, forty Runners that follow a log and stop reading
// would take all of the agent's memory; so would one that reads the logs of forty pods. Within a
// cluster the limit slows nothing down. Over 40 ms, for an agent outside of its cluster, a stream
// carries 6 MB/s.
const ahead = 256 << 10

// bound sets that on client-go's transport, which it has no setting for. It is shared by all
// clients of one cluster and has not been used when the first of them is made.
func bound(rt http.RoundTripper) {
	for {
		if t, ok := rt.(*http.Transport); ok {
			if t.HTTP2 == nil {
				t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: ahead}
			}
			return
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			return
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

func (s *clusterSeen) note(answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case answered:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = s.now()
	}
}

// state is a check for health: whether the Kubernetes API responds.
func (s *clusterSeen) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || s.now().Sub(s.since) < clusterPatience {
		return stateOK
	}
	return "the Kubernetes API does not answer since " + s.since.UTC().Format(time.RFC3339)
}

// seenTransport sees requests to the Kubernetes API.
type seenTransport struct {
	http.RoundTripper
	seen *clusterSeen
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (t seenTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements http.RoundTripper. A span ends when the answer begins: that of a log
// that is followed may take hours.
func (t seenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := resourceOf(r.URL.Path)
	ctx, answered := span.Calling(r.Context(), func() string { return "kubernetes " + r.Method + " " + resource }, r.Method,
		span.KubernetesResource.String(resource))
	if ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	answered(status, err)
	switch {
	case err == nil:
		t.seen.note(true)
	case !errors.Is(err, context.Canceled): // that one is ours
		t.seen.note(false)
	}
	return resp, err
}

// resourceOf returns the resource in a path of the Kubernetes API, with its subresource: never a
// name. Resources are those that our own code asks for.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch { // api/VERSION/… or apis/GROUP/VERSION/…
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "finalize" && parts[2] != "status" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
