package app_test

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
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

// TestLeader_DiesDuringRollout has two replicas, of which the one that
// leads is cut off after it has taken a command and before it could follow it.
func TestLeader_DiesDuringRollout(t *testing.T) {
	suite.Release(t, "a leader that dies in the middle of a rollout")
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	received := &receiver{}
	config := everywhere(env)
	config.Announce = received.take
	config.Replica = "one"
	one := startReplica(t, config)
	eventually(t, "the first leads", func() bool { return holder(t, env, config.Namespace) == "one" })
	config.Replica = "two"
	two := startReplica(t, config)
	k := key(ns, "survivor")

	deploy(t, two.Engine, k, image("1"))
	rollOut(t, env, k)
	settledIn(t, two.Engine, k, runnerapi.PhaseHealthy)
	assert.Equal(t, "one", holder(t, env, config.Namespace), "a replica that does not lead takes commands too")
	eventually(t, "the leader announces", func() bool { return len(received.of(k.Name)) > 0 })

	before := len(received.of(k.Name))
	first := received.teller(received.of(k.Name)[0])
	assert.NotEmpty(t, first.Lease)
	one.cut.Store(true)
	a := deploy(t, two.Engine, k, image("2"))
	assert.Equal(t, "example.com/web:1", get(t, env, k, &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Image, "nobody leads")
	eventually(t, "the second leads", func() bool { return holder(t, env, config.Namespace) == "two" })
	eventually(t, "and does what was commanded", func() bool {
		return get(t, env, k, &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Image == "example.com/web:2"
	})
	rollOut(t, env, k)
	settledIn(t, two.Engine, k, runnerapi.PhaseHealthy)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, two.Engine, "put-app", a).State)
	eventually(t, "and announces it", func() bool {
		now := received.of(k.Name)
		return len(now) > before && now[len(now)-1].Type == events.Healthy && now[len(now)-1].Generation == a.Generation
	})
	later := received.teller(received.of(k.Name)[before])
	assert.Equal(t, first.Lease, later.Lease)
	assert.Equal(t, first.Term+1, later.Term, "the control plane knows by it what comes late of the first")
	one.cut.Store(false)
	eventually(t, "the first serves again", func() bool {
		got, err := one.Get(t.Context(), k)
		return err == nil && got.Generation == a.Generation && got.Status.Phase == runnerapi.PhaseHealthy
	})
	assert.Equal(t, "two", holder(t, env, config.Namespace))
}
