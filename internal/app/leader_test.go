package app_test

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// replica is an Engine whose way to the API server can be cut, and whose watches of Apps can be
// held back.
type replica struct {
	*app.Engine
	cut     atomic.Bool
	watches gate                   // of Apps
	counted atomic.Int64           // how often it has read past its cache which Apps there are
	foreign atomic.Pointer[string] // namespace in which it may not
	stop    func()
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func startReplica(t *testing.T, config app.Config) *replica {
	t.Helper()
	r := &replica{}
	config.RESTConfig = rest.CopyConfig(config.RESTConfig)
	config.RESTConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			if r.cut.Load() {
				return nil, errors.New("cut off from the API server")
			}
			counts := strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList")
			if ns := r.foreign.Load(); counts && ns != nil && strings.Contains(req.URL.Path, "/namespaces/"+*ns+"/") {
				req = req.Clone(req.Context())
				req.Header.Set("Impersonate-User", "somebody-without-rights")
				req.Header.Del("Impersonate-Group")
			}
			answer, err := next.RoundTrip(req)
			switch ofApps := strings.HasSuffix(req.URL.Path, "/apps") && req.Method == http.MethodGet; {
			case err != nil || !ofApps:
			case req.URL.Query().Get("watch") != "":
				answer.Body = &gatedBody{ReadCloser: answer.Body, gate: &r.watches, closed: make(chan struct{})}
			case counts:
				r.counted.Add(1)
			}
			return answer, err
		})
	})
	config.Lease = cmp.Or(config.Lease, 3*time.Second)
	r.Engine, r.stop = startWith(t, config)
	return r
}

// holder is the replica that has the lease of the agent in a namespace.
func holder(t *testing.T, env *kubetest.Env, agent string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if !exists(t, env, key(agent, "pipeops-agent"), lease) {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
