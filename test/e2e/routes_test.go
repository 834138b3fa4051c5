package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// syncIngress sets the agent's switch as its customer would: in the config map,
// and with new pods.
func syncIngress(ctx context.Context, on bool) error {
	patch := fmt.Appendf(nil, `{"data":{"ENABLE_INGRESS_SYNC":"%t"}}`, on)
	_, err := sys.Kube.Clientset.CoreV1().ConfigMaps("pipeops").Patch(ctx, "pipeops-agent", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return sys.RolloutAgent(ctx, fmt.Sprintf("ingress-sync-%t", on))
}

// gatewayDomain is below which Apps have hosts without further ado.
const gatewayDomain = "apps.example.com"

type listedRoute struct {
	URL, Host, Namespace, App, Proof, Reason, Mode string
	Port                                           int
	Ready, Served                                  bool
	Agent                                          struct{ Name string }
}

// routesWhere waits until what `pipeops-controlplane routes` lists is as it should.
func routesWhere(t *testing.T, what string, right func([]listedRoute) bool) (list []listedRoute) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, func(ctx context.Context) error {
		out, err := sys.ControlPlane(ctx, "routes", agentName, "-o", "json")
		if err != nil {
			return err
		}
		var answer struct{ Items []listedRoute }
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			return err
		}
		if list = answer.Items; !right(list) {
			return fmt.Errorf("routes: %s", out)
		}
		return nil
	}))
	return list
}

// TestRoutes_PublicReachesApp follows a public host from its App's birth to its end. The cluster
// has no ingress controller and no address that the public reaches.
func TestRoutes_PublicReachesApp(t *testing.T) {
	suite.Release(t, "public Apps, end to end")
	host := controlapi.GivenHost("routes", namespace, agentName, gatewayDomain)
	removeApp(t, "routes")
	pipeops(t, "deploy", agentName, "routes", "--image", image, "--port", "8080", "--public", "--wait=2m")
	began := time.Now()
	listed := routesWhere(t, "the host is served", func(l []listedRoute) bool { return len(l) == 1 && l[0].Served && l[0].Ready })
	t.Logf("served %s after the deploy had ended", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, "https://"+host+"/", listed[0].URL)
	assert.Equal(t, "given", listed[0].Proof)
	assert.Equal(t, fmt.Sprintf("%s %s/routes:8080", agentName, namespace), fmt.Sprintf("%s %s/%s:%d", listed[0].Agent.Name, listed[0].Namespace, listed[0].App, listed[0].Port))
	var agents []announce.Agent
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "agents", "-o", "json")), &agents))
	require.Len(t, agents, 1)
	assert.Equal(t, []string{host}, agents[0].Hosts, "Runners are told too")

	routes := listRoutes(t)
	require.Len(t, routes, 1)
	assert.Equal(t, host, routes[0].Host)
	assert.Equal(t, runnerapi.RouteServing, routes[0].State)

	public, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	answers := func(what string, status int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, harness.Eventually(ctx, what, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := public.Do(r)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != status {
				return fmt.Errorf("it answered %s", resp.Status)
			}
			return nil
		}))
	}
	answers("the App answers the public", http.StatusOK)

	require.NoError(t, sys.KillControlPlane())
	kept, err := sys.ControlPlane(t.Context(), "routes", "--offline")
	require.NoError(t, err)
	assert.Contains(t, kept, "https://"+host+"/", "they are kept")
	require.NoError(t, sys.RestartControlPlane(t.Context()))
	require.NoError(t, sys.AwaitAgent(t.Context()))
	answers("the App answers after a crash of the control plane", http.StatusOK)

	require.NoError(t, syncIngress(t.Context(), false))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		assert.NoError(t, syncIngress(ctx, true))
	})
	routesWhere(t, "the cluster's owner has withdrawn it", func(l []listedRoute) bool { return len(l) == 0 })
	answers("nothing answers any more", http.StatusNotFound)
	require.NoError(t, syncIngress(t.Context(), true))
	answers("it answers again", http.StatusOK)

	pipeops(t, "delete", agentName, "routes")
	began = time.Now()
	routesWhere(t, "it is gone", func(l []listedRoute) bool { return len(l) == 0 })
	t.Logf("gone %s after the App", time.Since(began).Round(time.Millisecond))
	answers("nothing answers for an App that is gone", http.StatusNotFound)
}

// listRoutes returns the agent's routes as a Runner sees them.
func listRoutes(t *testing.T) []runnerapi.Route {
	t.Helper()
	var list struct{ Items []runnerapi.Route }
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "routes", agentName, "-o", "json")), &list))
	return list.Items
}
