package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
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

type listedRoute struct {
	URL, Host, Namespace, App, Reason string
	Port                              int
	Ready                             bool
	Agent                             struct{ Name string }
}

// routesWhere waits until what `pipeops-controlplane routes` lists is as it should.
func routesWhere(t *testing.T, what string, right func([]listedRoute) bool) (list []listedRoute) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// TestTheHostsOfAppsAreListed follows one from its App's birth to its end. The
// cluster has no ingress controller: the test says what one would.
func TestTheHostsOfAppsAreListed(t *testing.T) {
	suite.Release(t, "routes of Apps, end to end")
	const host = "routes.shop.example.com"
	require.NoError(t, syncIngress(t.Context(), true))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		assert.NoError(t, syncIngress(ctx, false))
	})
	removeApp(t, "routes")
	pipeops(t, "deploy", agentName, "routes", "--image", image, "--port", "8080", "--host", host+"/api", "--wait=2m")
	began := time.Now()
	listed := routesWhere(t, "the host is listed", func(l []listedRoute) bool {
		return len(l) == 1 && l[0].Reason == "no ingress controller has published an address of the Ingress"
	})
	t.Logf("listed %s after the deploy had ended", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, "http://"+host+"/api", listed[0].URL)
	assert.Equal(t, fmt.Sprintf("%s %s/routes:8080", agentName, namespace), fmt.Sprintf("%s %s/%s:%d", listed[0].Agent.Name, listed[0].Namespace, listed[0].App, listed[0].Port))
	assert.Contains(t, pipeops(t, "apps", agentName, "-n", namespace, "-o", "json"), "NoIngressClass")

	var agents []announce.Agent
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "agents", "-o", "json")), &agents))
	require.Len(t, agents, 1)
	assert.Equal(t, []string{host}, agents[0].Hosts, "Runners are told too")

	ingresses := sys.Kube.Clientset.NetworkingV1().Ingresses(namespace)
	in, err := ingresses.Get(t.Context(), "routes", metav1.GetOptions{})
	require.NoError(t, err)
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	_, err = ingresses.UpdateStatus(t.Context(), in, metav1.UpdateOptions{})
	require.NoError(t, err)
	routesWhere(t, "it is ready", func(l []listedRoute) bool { return len(l) == 1 && l[0].Ready })
	await.Until(t, "the App has its public URL", func() bool {
		return strings.Contains(pipeops(t, "apps", agentName, "-n", namespace, "-o", "json"), "http://"+host+"/api")
	})

	require.NoError(t, sys.KillControlPlane())
	kept, err := sys.ControlPlane(t.Context(), "routes")
	require.NoError(t, err)
	assert.Contains(t, kept, "http://"+host+"/api", "they are kept")
	require.NoError(t, sys.RestartControlPlane(t.Context()))
	require.NoError(t, sys.AwaitAgent(t.Context()))

	pipeops(t, "delete", agentName, "routes")
	began = time.Now()
	routesWhere(t, "it is gone", func(l []listedRoute) bool { return len(l) == 0 })
	t.Logf("gone %s after the App", time.Since(began).Round(time.Millisecond))
}
