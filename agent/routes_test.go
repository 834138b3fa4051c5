package agent_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func routesOn(c *config.Config) { c.EnableIngressSync = true }

// gatewayDomain is below which Apps have hosts by themselves.
const gatewayDomain = "apps.example.com"

// withGateway gives a control plane a gateway with its own CA, which asks a DNS server of the
// test for proofs.
func withGateway(t *testing.T) func(*controlplane.Config) {
	t.Helper()
	return withGatewayOf(dnstest.Start(t))
}

func withGatewayOf(dns *dnstest.Server) func(*controlplane.Config) {
	return func(c *controlplane.Config) {
		c.Gateway = controlplane.GatewayConfig{
			Domain: gatewayDomain, CA: controlplane.GatewayInternal, HTTPSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
			Resolvers: []string{dns.Address},
		}
	}
}

// publicApp makes an App with an ingress, as kubectl would.
func publicApp(t *testing.T, name, host string) *v1alpha1.App {
	t.Helper()
	env := kubetest.ControlPlane(t)
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: name}}
	a.Spec = runnerapi.AppSpec{
		Image: "example.com/web:1", Ports: []runnerapi.Port{{Port: 8080}},
		Ingress: &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: host}}},
	}
	require.NoError(t, env.Client.Create(t.Context(), a))
	t.Cleanup(func() { removeApp(t, a) })
	return a
}

// removeApp deletes an App, if it is there still, without the agent's help.
func removeApp(t *testing.T, a *v1alpha1.App) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c := kubetest.ControlPlane(t).Client
	assert.NoError(t, client.IgnoreNotFound(c.Delete(ctx, a)))
}

// awaitRoutes waits until the control plane has these hosts, and answers them.
func awaitRoutes(t *testing.T, p *planetest.Plane, hosts ...string) (list []routes.Route) {
	t.Helper()
	eventually(t, fmt.Sprintf("the control plane has the routes %q", hosts), func(ctx context.Context) error {
		routes, err := p.Gateway.Routes(ctx, "")
		if err != nil {
			return err
		}
		list = routes.Items
		for i := range max(len(hosts), len(list)) {
			if i >= len(hosts) || i >= len(list) || list[i].Host != hosts[i] {
				return fmt.Errorf("it has %+v", list)
			}
		}
		return nil
	})
	return list
}

// TestRoutes_ReachControlPlane, and follow restarts of both, a restored backup and a change of the
// setting.
func TestRoutes_ReachControlPlane(t *testing.T) {
	p, dir := planetest.Start(t, withGateway(t)), t.TempDir()
	first := run(t, p, dir, token(t, p), routesOn)
	p.AwaitOnline(t, time.Time{})
	backup := t.TempDir() + "/data"
	require.NoError(t, exec.Command("cp", "-a", p.Config.DataDir, backup).Run())

	one := publicApp(t, "one", "one.example.com")
	began := time.Now()
	got := awaitRoutes(t, p, "one.example.com")[0]
	t.Logf("a host was listed %s after its App was made", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, name, got.Agent.Name)
	assert.Equal(t, "production/one:8080 https://one.example.com/ Prefix",
		fmt.Sprintf("%s/%s:%d %s %s", got.Namespace, got.App, got.Port, got.URL, got.PathType))
	assert.False(t, got.Ready)
	assert.Contains(t, got.Reason, "set CNAME one.example.com to", "nothing proves the host yet")
	two := publicApp(t, "two", "two.example.com")
	awaitRoutes(t, p, "one.example.com", "two.example.com")

	t.Run("a restart of the control plane", func(t *testing.T) {
		p.Stop()
		p.Restart(t)
		awaitRoutes(t, p, "one.example.com", "two.example.com")
	})
	t.Run("what goes while it is away", func(t *testing.T) {
		p.Stop()
		require.NoError(t, kubetest.ControlPlane(t).Client.Delete(t.Context(), two))
		p.Restart(t)
		awaitRoutes(t, p, "one.example.com")
	})
	t.Run("a control plane from a backup, which knows none", func(t *testing.T) {
		p.Stop()
		p.Config.DataDir = backup
		p.Restart(t)
		awaitRoutes(t, p, "one.example.com")
	})
	t.Run("turned off, they are withdrawn", func(t *testing.T) {
		first.stop()
		again := p.Clock.Now()
		off := run(t, p, dir, "")
		p.AwaitOnline(t, again)
		awaitRoutes(t, p)
		off.stop()
	})
	t.Run("turned on again", func(t *testing.T) {
		run(t, p, dir, "", routesOn)
		awaitRoutes(t, p, "one.example.com")
		removeApp(t, one)
		awaitRoutes(t, p)
	})
}

// TestRoutes_BecomeReady by the status of the App's pods and its Ingress.
func TestRoutes_BecomeReady(t *testing.T) {
	p := planetest.Start(t, withGateway(t))
	env := kubetest.ControlPlane(t)
	run(t, p, t.TempDir(), token(t, p), routesOn)
	p.AwaitOnline(t, time.Time{})
	a := publicApp(t, "ready", "ready.example.com")
	awaitRoutes(t, p, "ready.example.com")

	_, err := p.Gateway.Grant(t.Context(), "ready.example.com", name)
	require.NoError(t, err)
	at := client.ObjectKeyFromObject(a)
	d := &appsv1.Deployment{}
	require.NoError(t, env.Client.Get(t.Context(), at, d))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	require.NoError(t, env.Client.Status().Update(t.Context(), d))
	awaitReason(t, p, "")
	require.Eventually(t, func() bool { // nothing listens here, and the gateway has tried
		require.NoError(t, env.Client.Get(t.Context(), at, a))
		return strings.Contains(ingressReady(a).Fix, "the App")
	}, patience, 100*time.Millisecond)
	assert.Equal(t, runnerapi.ReasonHostNotServed, ingressReady(a).Reason)
	assert.Empty(t, a.Status.PublicURLs)
}

// awaitReason waits until the only route is not ready for that reason, or ready.
func awaitReason(t *testing.T, p *planetest.Plane, reason string) {
	t.Helper()
	eventually(t, "reason: "+reason, func(ctx context.Context) error {
		routes, err := p.Gateway.Routes(ctx, "")
		if err != nil {
			return err
		}
		if len(routes.Items) != 1 || routes.Items[0].Reason != reason || routes.Items[0].Ready != (reason == "") {
			return fmt.Errorf("routes: %+v", routes.Items)
		}
		return nil
	})
}
