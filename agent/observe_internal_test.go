package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// answers is a Kubernetes API that does as the test says.
type answers struct{ err error }

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody}, nil
}

func TestClusterSeen_ReportsOutage(t *testing.T) {
	now := time.Now()
	seen := &clusterSeen{now: func() time.Time { return now }}
	ask := func(err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces", nil)
		resp, got := seenTransport{answers{err}, seen}.RoundTrip(r)
		assert.Equal(t, err, got)
		if resp != nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	assert.Equal(t, stateOK, seen.state(), "nobody has asked yet")
	ask(errors.New("connection refused"))
	assert.Equal(t, stateOK, seen.state(), "one failure may be a connection's")
	now = now.Add(clusterPatience)
	ask(errors.New("connection refused"))
	assert.Contains(t, seen.state(), "the Kubernetes API does not answer since ")
	ask(context.Canceled)
	assert.NotEqual(t, stateOK, seen.state(), "what we ended tells nothing")
	ask(nil)
	assert.Equal(t, stateOK, seen.state(), "an error of the API is an answer")
}

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/secrets/db-password":                    "secrets",
		"/api/v1/namespaces/shop":                                        "namespaces",
		"/api/v1/namespaces":                                             "namespaces",
		"/api/v1/namespaces/shop/status":                                 "namespaces/status",
		"/api/v1/namespaces/shop/pods/web-1/log":                         "pods/log",
		"/api/v1/nodes":                                                  "nodes",
		"/apis/pipeops.io/v1alpha1/namespaces/shop/apps/web/status":      "apps/status",
		"/apis/apps/v1/namespaces/shop/deployments":                      "deployments",
		"/apis/coordination.k8s.io/v1/namespaces/pipeops/leases/pipeops": "leases",
		"/version":    "other",
		"/openapi/v2": "other",
		"/":           "other",
	} {
		assert.Equal(t, want, resourceOf(path), path)
	}
}

// TestMetrics_BoundedSeries, whatever is requested.
func TestMetrics_BoundedSeries(t *testing.T) {
	i := newInstruments("test")
	server := httptest.NewServer(server.New(nil, server.Config{
		TrustDomain: "test", Version: "test", Observation: server.Observation{Begun: i.begun, Called: i.called},
	}))
	t.Cleanup(server.Close)
	ask := func(path string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	ask("/v1/namespaces/first/apps/web")
	ask("/nowhere")
	before := testutil.CollectAndCount(i.commands)
	for n := range 200 {
		ask("/v1/namespaces/n" + strconv.Itoa(n) + "/apps/a" + strconv.Itoa(n))
		ask("/v1/" + strconv.Itoa(n))
	}
	assert.Equal(t, 2, before)
	assert.Equal(t, before, testutil.CollectAndCount(i.commands))
	problems, err := testutil.GatherAndLint(i.registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// silent is an API server that takes requests and answers none.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestHeartbeat_APIServerHangs: the heartbeat is not delayed for long. The control plane would
// consider the agent offline, and the agent would not learn of revoked Runners.
func TestHeartbeat_APIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := kube.New(&rest.Config{Host: "http://kubernetes.invalid", Transport: silent{}}, kube.Options{Namespace: "agent"})
		require.NoError(t, err)
		began, uid := time.Now(), "uid"
		o := &observer{
			version: "v1.0.0", now: time.Now, kube: k, cluster: &clusterID{}, cas: &caRotation{}, updates: &selfUpdate{}, checkup: &checkup{},
			seen: &clusterSeen{now: time.Now},
			components: func(ctx context.Context) []controlapi.Component {
				<-ctx.Done()
				return nil
			},
		}
		o.cluster.uid.Store(&uid)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		beat, err := o.observe(ctx, &tunnel.Set{}, true)
		require.Error(t, err)
		assert.Equal(t, "v1.0.0", beat.AgentVersion)
		assert.LessOrEqual(t, time.Since(began), 30*time.Second)
		assert.True(t, beat.Standby, "the control plane keeps the last figures")
		assert.Nil(t, beat.Checks, "it is away for a moment only")
		o.seen.note(false)
		time.Sleep(clusterPatience)
		for _, leads := range []bool{true, false} {
			beat, _ = o.observe(ctx, &tunnel.Set{}, leads)
			require.NotNil(t, beat.Checks)
			assert.Equal(t, "kubernetes", beat.Checks.Findings[0].Check)
			assert.Contains(t, beat.Checks.Findings[0].Detail, "the Kubernetes API does not answer since ")
		}
	})
}
