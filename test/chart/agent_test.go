package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	exampleURL  = "https://cp.example.com:8443"
	clusterName = "prod-1" // docs/reference/charts.md's
	previous    = "0.0.9"
)

// TestChart_Life is an agent's life by the commands of docs/reference/charts.md: installed in its
// previous version, tested, upgraded, uninstalled; nothing is left.
func TestChart_Life(t *testing.T) {
	suite.Release(t, "the life of the agent's chart")
	sys := system(t)
	before := everything(t)
	require.NoError(t, loadAgent(t.Context(), previous))
	packaged := t.TempDir()
	helm(t, "package", agentChart, "--version", previous, "--app-version", previous, "--destination", packaged)

	said := shell(t, documented(t, "install", exampleURL, sys.APIURL(),
		"install pipeops-agent "+agentChart, "install pipeops-agent "+filepath.Join(packaged, "pipeops-agent-"+previous+".tgz")))
	assert.Contains(t, said, "Phase:          Succeeded")
	assert.Contains(t, said, "See that it works")
	first := awaitAgent(t, clusterName, previous)
	noTokenInRelease(t)

	app, err := sys.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	pipeops(t, "namespace", "create", clusterName, "shop")
	pipeops(t, "deploy", clusterName, "web", "-n", "shop", "--image", app, "--port", "8080")
	pods := shell(t, "kubectl -n shop get pods -o name")

	shell(t, documented(t, "upgrade"))
	upgraded := awaitAgent(t, clusterName, version)
	assert.Equal(t, strings.Fields(first)[1], strings.Fields(upgraded)[1], "the agent keeps its ID")
	assert.Equal(t, pods, shell(t, "kubectl -n shop get pods -o name"), "the App keeps running")
	pipeops(t, "scale", clusterName, "web", "-n", "shop", "--replicas", "2")

	policyIsTheOwners(t)

	pipeops(t, "namespace", "delete", clusterName, "shop", "--yes")
	shell(t, "kubectl delete namespace production beta") // which the agent has made
	shell(t, documented(t, "uninstall"))
	eventually(t, "nothing is left but the App resource", func(context.Context) error {
		left := slices.DeleteFunc(everything(t), func(object string) bool { return slices.Contains(before, object) })
		if !slices.Equal(left, []string{"customresourcedefinitions.apiextensions.k8s.io apps.pipeops.io"}) {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
	shell(t, "kubectl delete crd apps.pipeops.io")
}

// policyIsTheOwners: the chart makes a policy once, and leaves alone what its owner makes of it.
func policyIsTheOwners(t *testing.T) {
	t.Helper()
	upgrade := "helm upgrade pipeops-agent " + agentChart + " --namespace pipeops --reuse-values --set agent.policyPreset=full"
	preset := "kubectl -n pipeops get configmap pipeops-policy -o jsonpath={.data.preset}"
	shell(t, upgrade)
	require.Equal(t, "full", shell(t, preset))
	shell(t, `kubectl -n pipeops patch configmap pipeops-policy --type merge -p '{"data":{"preset":"viewer"}}'`)
	shell(t, upgrade)
	require.Equal(t, "viewer", shell(t, preset))
	shell(t, "kubectl -n pipeops delete configmap pipeops-policy")
}

// noTokenInRelease looks for the token where Helm keeps a release.
func noTokenInRelease(t *testing.T) {
	t.Helper()
	release := shell(t, "helm get all pipeops-agent --namespace pipeops")
	require.Contains(t, release, "AGENT_TOKEN")
	require.NotContains(t, release, "pipeops_")
}

// derived come and go by themselves, or with others.
var derived = []string{"events", "leases", "componentstatuses", "endpoints", "apiservices"}

// everything is every object in the cluster by name, less what is derived.
func everything(t *testing.T) (all []string) {
	t.Helper()
	kube := shared.sys.Kube
	lists, err := discovery.ServerPreferredResources(kube.Clientset.Discovery())
	if !discovery.IsGroupDiscoveryFailedError(err) { // the metrics' may be late
		require.NoError(t, err)
	}
	client, err := metadata.NewForConfig(kube.Config)
	require.NoError(t, err)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(derived, resource.Name) || group.Group == "metrics.k8s.io" {
				continue
			}
			objects, err := client.Resource(group.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, resource.Name)
			for _, o := range objects.Items {
				name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
				all = append(all, group.WithResource(resource.Name).GroupResource().String()+" "+name)
			}
		}
	}
	return all
}

// TestChart_NamespacedBehindProxy is an agent with rights in one namespace, which
// reaches the control plane through a proxy that wants a password, and whose CA it
// is given in a config map: its token has no fingerprint.
func TestChart_NamespacedBehindProxy(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	const account = "agent:canary-5d1f"
	proxy := proxytest.Start(t, proxytest.Config{Host: sys.HostIP(), Account: account})
	token, err := sys.CreateToken(t.Context())
	require.NoError(t, err)
	token, _, _ = strings.Cut(token, ".")
	t.Cleanup(func() { removeAgent(t, "limited", "granted", "other") })
	shell(t, in("limited", fmt.Sprintf(`
kubectl create namespace pipeops
kubectl label namespace pipeops pod-security.kubernetes.io/enforce=restricted
for ns in granted other; do
  kubectl create namespace $ns
  kubectl label namespace $ns app.kubernetes.io/managed-by=pipeops
done
kubectl -n pipeops create secret generic enrolment --from-literal=AGENT_TOKEN=%s
kubectl -n pipeops create secret generic proxy --from-literal=HTTPS_PROXY=%s
kubectl -n pipeops create configmap company-ca --from-file=ca.crt=%s
helm install pipeops-agent %s --namespace pipeops --wait --values %[4]s/ci/custom-ca.yaml \
  --set agent.controlPlaneUrl=%s --set agent.clusterName=limited --set agent.existingSecret=enrolment \
  --set agent.namespaces='{granted}' --set proxy.existingSecret=proxy
helm test pipeops-agent --namespace pipeops
`, token, proxy.URL(account), filepath.Join(sys.DataDir(), "ca.pem"), agentChart, sys.APIURL())))
	awaitAgent(t, "limited", version)

	app, err := sys.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	pipeops(t, "deploy", "limited", "web", "-n", "granted", "--image", app, "--port", "8080")
	assert.Contains(t, pipeops(t, "apps", "limited", "-A"), "web")
	assert.Contains(t, refused(t, "deploy", "limited", "web", "-n", "other", "--image", app), "does not manage namespace")
	assert.Contains(t, refused(t, "namespace", "create", "limited", "another"), "limited to the namespaces granted")
	pipeops(t, "delete", "limited", "web", "-n", "granted")

	for question, answer := range map[string]string{
		"create deployments -n granted": "yes", "list pods -n granted": "yes", "get namespaces": "yes",
		"create deployments -n other": "no", "list pods -A": "no", "get secrets -n other": "no",
		"create namespaces": "no", "create rolebindings -n granted": "no", "patch namespaces": "no",
	} {
		said := shell(t, "kubectl auth can-i "+question+" --as system:serviceaccount:limited:pipeops-agent 2>/dev/null || true")
		assert.Equal(t, answer, strings.TrimSpace(said), question)
	}
	hosts := proxy.Asked()
	assert.Contains(t, hosts, strings.TrimPrefix(sys.APIURL(), "https://"))
	assert.Contains(t, hosts, sys.HostIP()+":7000", "the tunnel too")
	assert.Len(t, hosts, 2, "and nothing else: the Kubernetes API is reached directly")
}

// removeAgent puts the cluster back, but for namespaces, which go in the background:
// the agent's, and others.
func removeAgent(t *testing.T, namespace string, others ...string) {
	t.Helper()
	const last = "kubectl delete namespace pipeops"
	uninstall := in(namespace, documented(t, "uninstall", last, last+" --wait=false "+strings.Join(others, " ")))
	out, err := runShell(context.WithoutCancel(t.Context()), uninstall+"kubectl delete crd apps.pipeops.io") // the test's context has ended
	assert.NoError(t, err, out)
}

// TestChart_TakeOver has Helm take over an agent that came by `kubectl apply`.
func TestChart_TakeOver(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	token, err := sys.CreateToken(t.Context())
	require.NoError(t, err)
	require.NoError(t, sys.DeployAgent(t.Context(), clusterName, token))
	t.Cleanup(func() { removeAgent(t, "pipeops", "production") })
	agent := awaitAgent(t, clusterName, "")
	shell(t, documented(t, "takeover", exampleURL, sys.APIURL()))
	taken := awaitAgent(t, clusterName, version)
	assert.Equal(t, strings.Fields(agent)[1], strings.Fields(taken)[1], "the agent keeps its ID")
}
