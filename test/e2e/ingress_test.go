package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestIngress_ServesApp: a stand-in for F5's controller in the pod of its real chart, with our
// values and the chart's rights, serves an App by HTTP, and by HTTPS with the certificate of the
// App's Secret. The App names no class, so the component's is the default one.
func TestIngress_ServesApp(t *testing.T) {
	suite.Release(t, "the component ingress: an App behind F5's chart, in which a stand-in runs")
	const app, plain, secure, secret = "behind-f5", "plain.f5.example", "secure.f5.example", "behind-f5-tls"
	wanted := map[string]component{"ingress": ingress(t)}
	installComponents(t, wanted)
	await.Until(t, "component list shows that only the load balancer is left", func() bool {
		return strings.Contains(components(t.Context(), t, "list"), "ingress: nginx-ingress/nginx-ingress-controller: the Service has no address yet")
	})
	balance(t, "nginx-ingress", "nginx-ingress-controller")
	componentsBecomeReady(t, wanted)

	certificate := tlsSecret(t, secret, secure)
	removeApp(t, app)
	// A path of a host by HTTP, and a host by HTTPS.
	file := appFile(t, app, fmt.Sprintf("hosts: [{host: %s, path: /healthz}, {host: %s, tlsSecret: %s}]", plain, secure, secret))
	pipeops(t, "deploy", agentName, "-f", file, "--wait=2m")
	answersAtTheBalancer(t, secure, trusting(t, certificate))
	visitor := harness.VisitorAt(sys.Cluster.NodeIP(), nil)
	require.NoError(t, fetch(t, visitor, "http://"+plain+"/healthz"))
	require.ErrorContains(t, fetch(t, visitor, "http://"+plain+"/"), "404", "the App's page is on the other host alone")
	require.ErrorContains(t, fetch(t, visitor, "https://"+plain+"/healthz"), "tls", "the host has no certificate")

	await.Until(t, "the Ingress has the load balancer's address", func() bool {
		in, err := sys.Kube.Clientset.NetworkingV1().Ingresses(namespace).Get(t.Context(), app, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "nginx", ptr.Deref(in.Spec.IngressClassName, ""))
		at := in.Status.LoadBalancer.Ingress
		return len(at) == 1 && at[0].IP == sys.Cluster.NodeIP()
	})
}

// ingress has a stand-in for F5's controller in the chart's pod. F5's image lets NGINX listen below
// port 1024 by a capability of its file.
func ingress(t *testing.T) component {
	t.Helper()
	image := standIn(t, "nginx-ingress")
	image["repository"] = fmt.Sprint(image["registry"], "/", image["repository"]) // this chart knows no registry
	return component{Mode: "always", Values: map[string]any{"nginx-ingress": map[string]any{"controller": map[string]any{
		"image": image, "podSecurityContext": map[string]any{
			"sysctls": []map[string]string{{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}},
		},
	}}}}
}

// appFile writes an App with an ingress.
func appFile(t *testing.T, app, ingress string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: pipeops.io/v1alpha1
kind: App
metadata: {name: %s, namespace: %s}
spec:
  image: %s
  ports: [{port: 8080}]
  ingress: {%s}
`, app, namespace, image, ingress), 0o600))
	return path
}
