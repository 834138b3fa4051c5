package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

const traefik = "traefik" // the release, its namespace and its Deployment

// TestTraefik_ServesApp deploys an App with a host, and reaches it at Traefik's load balancer's
// address, and through the gateway in direct mode until Traefik is gone. Traefik is the real one,
// from its real chart. The test stands in for the cloud alone: it gives Traefik's Service the
// node's address, which kube-proxy then serves.
func TestTraefik_ServesApp(t *testing.T) {
	suite.Release(t, "Traefik: Ingresses of Apps, and the gateway's direct mode")
	const app, host, secret = "behind-traefik", "shop.traefik.example", "shop-tls"
	installTraefik(t)
	out, err := sys.Agent(t.Context(), nil, "component", "list", "--kubeconfig", sys.Cluster.Kubeconfig())
	require.NoError(t, err)
	assert.Regexp(t, `ingress\s+others': IngressClass traefik`, out, "another one would not be installed")

	_, err = sys.ControlPlane(t.Context(), "gateway", "grant", "create", host, agentName)
	require.NoError(t, err)
	certificate := tlsSecret(t, secret, host)
	removeApp(t, app)
	pipeops(t, "deploy", agentName, app, "--image", image, "--port", "8080", "--host", host, "--tls-secret", secret, "--wait=2m")
	answersAtTheBalancer(t, host, trusting(t, certificate))

	visitor, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	reachedIn(t, visitor, host, "direct")
	scaleTraefik(t, 0)
	began := time.Now()
	reachedIn(t, visitor, host, "tunnel")
	t.Logf("in tunnel mode %s after Traefik's end", time.Since(began).Round(time.Millisecond))
	scaleTraefik(t, 1)
	reachedIn(t, visitor, host, "direct")
}

// installTraefik installs the real chart with an image made of the real module, and gives its
// Service an address.
func installTraefik(t *testing.T) {
	t.Helper()
	chart, err := filepath.Glob(filepath.Join(charts.Directory(t), "traefik-*.tgz"))
	require.NoError(t, err)
	require.Len(t, chart, 1)
	load(t, upstream.Traefik)
	// Ingresses need none of Traefik's own kinds, and one file of those in the archive is not a
	// kind.
	helm(t, "install", traefik, chart[0], "--namespace", traefik, "--create-namespace", "--skip-crds",
		"--set", "providers.kubernetesCRD.enabled=false", "--set", "image.tag="+upstream.TraefikVersion,
		"--set", "global.checkNewVersion=false", "--set", "accessLog.enabled=true")
	t.Cleanup(func() { helm(t, "uninstall", traefik, "--namespace", traefik, "--wait") })
	balance(t, traefik, traefik)
}

// balance stands in for the cloud: it gives a Service the node's address, which kube-proxy serves.
func balance(t *testing.T, namespace, name string) {
	t.Helper()
	services := sys.Kube.Clientset.CoreV1().Services(namespace)
	service, err := services.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: sys.Cluster.NodeIP()}}
	_, err = services.UpdateStatus(t.Context(), service, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// load compiles programs of others, and loads their images into the cluster.
func load(t *testing.T, programs ...upstream.Program) {
	t.Helper()
	for _, p := range programs {
		began := time.Now()
		require.NoError(t, p.Load(t.Context(), sys.Cluster))
		t.Logf("%s after %s", p.Ref, time.Since(began).Round(time.Second))
	}
}

// helm runs Helm as the cluster's owner.
func helm(t *testing.T, args ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also for the clean-up
	program, err := programs.Helm.Build(ctx)
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, program, append(args, "--kubeconfig", sys.Cluster.Kubeconfig())...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func scaleTraefik(t *testing.T, pods int32) {
	t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: traefik, Namespace: traefik}, Spec: autoscalingv1.ScaleSpec{Replicas: pods}}
	_, err := sys.Kube.Clientset.AppsV1().Deployments(traefik).UpdateScale(t.Context(), traefik, scale, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func trusting(t *testing.T, certificate string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(certificate)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	return roots
}

// answersAtTheBalancer waits until the App answers at the load balancer's address, with a
// certificate of these authorities.
func answersAtTheBalancer(t *testing.T, host string, roots *x509.CertPool) {
	t.Helper()
	c := harness.VisitorAt(sys.Cluster.NodeIP(), roots)
	await.Until(t, "the App answers at the load balancer's address", func() bool { return fetch(t, c, "https://"+host+"/") == nil })
}

// reachedIn waits until a host is in a mode, and wants requests to come through Traefik in direct
// mode, and past it in tunnel mode.
func reachedIn(t *testing.T, visitor *http.Client, host, mode string) {
	t.Helper()
	await.Until(t, host+" is in "+mode+" mode", func() bool {
		out, err := sys.ControlPlane(t.Context(), "routes", agentName, "-o", "json")
		require.NoError(t, err)
		var list struct{ Items []struct{ Host, Mode string } }
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		return len(list.Items) == 1 && list.Items[0].Host == host && list.Items[0].Mode == mode
	})
	path := fmt.Sprintf("/?%s-%d", mode, time.Now().UnixNano())
	require.NoError(t, fetch(t, visitor, "https://"+host+path))
	if mode == "direct" {
		await.Until(t, "Traefik logs the request", func() bool { return strings.Contains(traefikLog(t), path) })
	}
}

func fetch(t *testing.T, c *http.Client, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return nil
}

func traefikLog(t *testing.T) string {
	t.Helper()
	out, err := sys.Cluster.Kubectl(t.Context(), "logs", "--namespace", traefik, "deployment/"+traefik)
	require.NoError(t, err)
	return string(out)
}

// tlsSecret has a Runner set a Secret with a certificate for a host, and returns the certificate's
// file.
func tlsSecret(t *testing.T, name, host string) (certificate string) {
	t.Helper()
	certificate, key := selfSigned(t, host)
	pipeops(t, "secret", "set", agentName, name, "--type", "tls", "--cert", certificate, "--key", key)
	t.Cleanup(func() {
		_, err := sys.Runner(context.Background(), runner, "secret", "delete", agentName, name)
		assert.NoError(t, err)
	})
	return certificate
}

// selfSigned writes a certificate for a host, which is its own authority, and its key.
func selfSigned(t *testing.T, host string) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, selfsigned.Write(dir, host))
	return filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
}
