package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// objects are the objects of a manifest by kind and name, and namespace where
// that is another than the agent's.
type objects map[string]*unstructured.Unstructured

func parse(t *testing.T, manifest []byte) objects {
	t.Helper()
	all := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 64<<10)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(o.Object) == 0 {
			continue
		}
		key := o.GetKind() + " " + o.GetName()
		if ns := o.GetNamespace(); ns != "" && ns != "pipeops" {
			key += " in " + ns
		}
		require.NotContains(t, all, key, "made twice")
		all[key] = o
	}
}

// render renders a chart with one of its example values, without the tests.
func render(t *testing.T, chart, values string, args ...string) objects {
	t.Helper()
	return parse(t, []byte(helm(t, append([]string{
		"template", filepath.Base(chart), chart, "--namespace", "pipeops", "--skip-tests", "--values", filepath.Join(chart, "ci", values),
	}, args...)...)))
}

func field[T any](t *testing.T, o *unstructured.Unstructured, path ...string) T {
	t.Helper()
	require.NotNil(t, o)
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	require.NoError(t, err)
	require.True(t, found, "%s has no %s", o.GetName(), strings.Join(path, "."))
	out, ok := value.(T)
	require.True(t, ok, "%s is a %T", strings.Join(path, "."), value)
	return out
}

func podSpec(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	return field[map[string]any](t, o, "spec", "template", "spec")
}

func container(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	return podSpec(t, o)["containers"].([]any)[0].(map[string]any)
}

// TestChart_DefaultsEqualManifest keeps chart and deployments/agent.yaml the same:
// with default values the chart makes these very objects, less the namespaces,
// which Helm makes, and its own config map, which agent.yaml has users make.
func TestChart_DefaultsEqualManifest(t *testing.T) {
	manifest, err := deployments.Agent()
	require.NoError(t, err)
	want := parse(t, manifest)
	maps.DeleteFunc(want, func(key string, o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace" || strings.Contains(key, " in ") // and what is in other namespaces
	})
	got := render(t, agentChart, "single.yaml")
	require.Contains(t, got, "ConfigMap pipeops-agent")
	delete(got, "ConfigMap pipeops-agent")

	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for key, o := range got {
		assert.Equal(t, want[key].Object, withoutHelm(t, o).Object, "%s: change the chart's template, or deployments/agent, so that both say the same", key)
	}
}

// withoutHelm takes off what Helm's objects carry beside the manifest's.
func withoutHelm(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	labels := o.GetLabels()
	if o.GetKind() != "CustomResourceDefinition" {
		assert.Equal(t, "Helm", labels["app.kubernetes.io/managed-by"])
		for _, key := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, key)
		}
		o.SetLabels(labels)
	}
	if notes := o.GetAnnotations(); notes != nil {
		delete(notes, "helm.sh/resource-policy")
		o.SetAnnotations(notes)
	}
	if o.GetKind() == "Deployment" {
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
		delete(container(t, o), "imagePullPolicy") // the API's default
	}
	return o
}

func TestChart_HighAvailability(t *testing.T) {
	ha := render(t, agentChart, "ha.yaml")
	agent := ha["Deployment pipeops-agent"]
	assert.EqualValues(t, 2, field[float64](t, agent, "spec", "replicas"))
	assert.Equal(t, "RollingUpdate", field[string](t, agent, "spec", "strategy", "type"))
	assert.Len(t, podSpec(t, agent)["topologySpreadConstraints"], 1)
	assert.EqualValues(t, 1, field[float64](t, ha["PodDisruptionBudget pipeops-agent"], "spec", "maxUnavailable"))
}

// TestChart_SwitchesOff is about templates that take false for "not set".
func TestChart_SwitchesOff(t *testing.T) {
	for value, object := range map[string]string{
		"podDisruptionBudget.enabled": "PodDisruptionBudget pipeops-agent",
		"networkPolicy.enabled":       "NetworkPolicy pipeops-agent",
		"crd.enabled":                 "CustomResourceDefinition apps.pipeops.io",
	} {
		assert.Contains(t, render(t, agentChart, "ha.yaml"), object, value)
		assert.NotContains(t, render(t, agentChart, "ha.yaml", "--set", value+"=false"), object, value)
	}
	off := render(t, agentChart, "ha.yaml", "--set", "agent.enableIngressSync=false,agent.autoInstallComponents=false")
	assert.Equal(t, "false", field[string](t, off["ConfigMap pipeops-agent"], "data", "ENABLE_INGRESS_SYNC"))
	assert.NotContains(t, off, "Job pipeops-components")
	open := render(t, agentChart, "ha.yaml")
	assert.Equal(t, "true", field[string](t, open["ConfigMap pipeops-agent"], "data", "ENABLE_INGRESS_SYNC"))
	on := render(t, agentChart, "components.yaml")
	assert.Equal(t, "false", field[string](t, on["ConfigMap pipeops-agent"], "data", "ENABLE_INGRESS_SYNC"))
	assert.Contains(t, on, "Job pipeops-components")
}

func TestChart_FetchAddresses(t *testing.T) {
	settings := func(args ...string) map[string]any {
		return field[map[string]any](t, render(t, agentChart, "single.yaml", args...)["ConfigMap pipeops-agent"], "data")
	}
	assert.NotContains(t, settings(), "PIPEOPS_FETCH_ADDRESSES")
	assert.NotContains(t, settings(), "PIPEOPS_DIRECT_ADDRESSES")
	assert.Equal(t, "10.20.0.0/16", settings("--set", "agent.directAddresses={10.20.0.0/16}")["PIPEOPS_DIRECT_ADDRESSES"])
	assert.Equal(t, "127.0.0.0/8,::1/128", settings("--set", "agent.fetchAddresses={127.0.0.0/8,::1/128}")["PIPEOPS_FETCH_ADDRESSES"])
}

// TestChart_NarrowsEgress: the policy allows what is named, and DNS.
func TestChart_NarrowsEgress(t *testing.T) {
	rules := func(args ...string) []any {
		t.Helper()
		return field[[]any](t, render(t, agentChart, args[0], args[1:]...)["NetworkPolicy pipeops-agent"], "spec", "egress")
	}
	port := func(protocol string, number int) any {
		return map[string]any{"port": float64(number), "protocol": protocol}
	}
	network := func(cidr string) any { return map[string]any{"ipBlock": map[string]any{"cidr": cidr}} }
	dns := map[string]any{"ports": []any{port("UDP", 53), port("TCP", 53)}}
	networks := []any{network("10.0.0.10/32"), network("192.0.2.20/32")}
	ports := []any{port("TCP", 6443), port("TCP", 8443), port("TCP", 7000)}

	assert.Equal(t, []any{map[string]any{}}, rules("single.yaml"), "anywhere")
	assert.Equal(t, []any{dns, map[string]any{"to": networks, "ports": ports}}, rules("egress.yaml"))
	assert.Equal(t, []any{dns, map[string]any{"to": networks}}, rules("egress.yaml", "--set", "networkPolicy.egress.ports=null"))
	assert.Equal(t, []any{dns, map[string]any{"ports": ports}}, rules("egress.yaml", "--set", "networkPolicy.egress.networks=null"))
	assert.Equal(t, []any{dns, map[string]any{"to": networks, "ports": []any{port("TCP", 6443), port("UDP", 5353)}}}, rules("egress.yaml", "--set", "networkPolicy.egress.ports={6443,5353/udp}"))
}

// TestChart_SelfUpdateOffByDefault: self-update and its right are off.
func TestChart_SelfUpdateOffByDefault(t *testing.T) {
	manifest, err := deployments.SelfUpdate()
	require.NoError(t, err)
	off, on := render(t, agentChart, "single.yaml"), render(t, agentChart, "single.yaml", "--set", "selfUpdate.enabled=true")
	for key, want := range parse(t, manifest) {
		assert.NotContains(t, off, key)
		require.Contains(t, on, key)
		assert.Equal(t, want.Object, withoutHelm(t, on[key]).Object, key)
	}
	assert.NotContains(t, off["ConfigMap pipeops-agent"].Object["data"], "PIPEOPS_SELF_UPDATE")
	assert.Equal(t, "true", field[string](t, on["ConfigMap pipeops-agent"], "data", "PIPEOPS_SELF_UPDATE"))
	assert.Equal(t, "5m", field[string](t, on["ConfigMap pipeops-agent"], "data", "PIPEOPS_UPDATE_DEADLINE"))
	assert.Equal(t, "1", field[string](t, on["ConfigMap pipeops-agent"], "data", "PIPEOPS_UPDATE_SIGNATURES"))
}

func TestChart_NamespacedRights(t *testing.T) {
	all := render(t, agentChart, "namespaced.yaml")
	reads := []any{"get", "list", "watch"}
	for key, o := range all {
		if o.GetKind() != "ClusterRole" {
			continue
		}
		for _, rule := range field[[]any](t, o, "rules") {
			assert.Subset(t, reads, rule.(map[string]any)["verbs"], "%s may write in the whole cluster", key)
			for _, resource := range rule.(map[string]any)["resources"].([]any) {
				assert.Contains(t, []any{"namespaces", "nodes", "customresourcedefinitions", "gatewayclasses"}, resource)
			}
		}
	}
	assert.NotContains(t, all, "ClusterRole pipeops-agent-namespace")
	for _, ns := range []string{"shop", "shop-staging"} {
		assert.Equal(t, "Role", field[string](t, all["RoleBinding pipeops-agent in "+ns], "roleRef", "kind"))
		assert.NotEmpty(t, field[[]any](t, all["Role pipeops-agent in "+ns], "rules"))
	}
	assert.Equal(t, "shop,shop-staging", field[string](t, all["ConfigMap pipeops-agent"], "data", "PIPEOPS_NAMESPACES"))
}

func TestChart_Token(t *testing.T) {
	secretOf := func(all objects) any {
		for _, env := range container(t, all["Deployment pipeops-agent"])["env"].([]any) {
			if env.(map[string]any)["name"] == "AGENT_TOKEN" {
				return env.(map[string]any)["valueFrom"].(map[string]any)["secretKeyRef"].(map[string]any)["name"]
			}
		}
		return nil
	}
	existing := render(t, agentChart, "existing-secret.yaml")
	assert.NotContains(t, existing, "Secret pipeops-agent")
	assert.Equal(t, "enrolment", secretOf(existing))

	assert.Equal(t, []any{"enrolment"}, field[[]any](t, existing["Role pipeops-agent-token"], "rules")[0].(map[string]any)["resourceNames"])
	kept := render(t, agentChart, "single.yaml", "--set", "agent.removeToken=false")
	assert.NotContains(t, kept, "Role pipeops-agent-token")
	assert.NotContains(t, kept, "RoleBinding pipeops-agent-token")
	assert.NotContains(t, fmt.Sprint(container(t, kept["Deployment pipeops-agent"])["env"]), "PIPEOPS_TOKEN_SECRET")

	given := render(t, agentChart, "single.yaml", "--set", "agent.token=pipeops_a_b")
	assert.Equal(t, "pipeops_a_b", field[string](t, given["Secret pipeops-agent"], "stringData", "AGENT_TOKEN"))
	assert.Equal(t, "pipeops-agent", secretOf(given))
}

// TestChart_Proxy: an account is in a Secret.
func TestChart_Proxy(t *testing.T) {
	secretOf := func(args ...string) any {
		for _, env := range container(t, render(t, agentChart, "single.yaml", args...)["Deployment pipeops-agent"])["env"].([]any) {
			if env.(map[string]any)["name"] == "HTTPS_PROXY" {
				return env.(map[string]any)["valueFrom"].(map[string]any)["secretKeyRef"]
			}
		}
		return nil
	}
	assert.Equal(t, map[string]any{"name": "pipeops-agent-proxy", "key": "HTTPS_PROXY", "optional": true}, secretOf())
	assert.Equal(t, map[string]any{"name": "proxy", "key": "HTTPS_PROXY", "optional": false}, secretOf("--set", "proxy.existingSecret=proxy"))
	assert.Nil(t, secretOf("--set", "proxy.https=http://proxy.example.com:3128"))
}

// TestChart_RestartsOnSettings: pods read their settings once.
func TestChart_RestartsOnSettings(t *testing.T) {
	sum := func(args ...string) string {
		agent := render(t, agentChart, "single.yaml", args...)["Deployment pipeops-agent"]
		return field[string](t, agent, "spec", "template", "metadata", "annotations", "checksum/settings")
	}
	assert.Equal(t, sum(), sum())
	assert.NotEqual(t, sum(), sum("--set", "agent.logLevel=debug"))
}

// TestChart_AnotherNamespace: no object refers to the usual namespace.
func TestChart_AnotherNamespace(t *testing.T) {
	text := helm(t, "template", "agent", agentChart, "--namespace", "elsewhere", "--values", agentChart+"/ci/single.yaml")
	for _, o := range parse(t, []byte(text)) {
		assert.NotEqual(t, "pipeops", o.GetNamespace(), o.GetName())
	}
	assert.Contains(t, text, `request.userInfo.username == "system:serviceaccount:elsewhere:pipeops-agent"`)
	assert.Contains(t, text, `in ["default", "pipeops", "elsewhere"]`, "the agent keeps out of its own namespace")
	assert.NotContains(t, text, "namespace: pipeops\n")
}

// TestChart_RightsOffByDefault: the rights of separate manifests are off. When a value turns them
// on, they equal the manifest's.
func TestChart_RightsOffByDefault(t *testing.T) {
	off := render(t, agentChart, "single.yaml")
	for name, c := range map[string]struct {
		manifest []byte
		on       []string
	}{
		"nodes":          {deployments.NodeRights(), []string{"nodes.enabled=true"}},
		"manifests":      {deployments.ManifestRights(), []string{"manifests.enabled=true", "manifests.namespaces={production}", "manifests.cluster=true"}},
		"Kubernetes API": {deployments.KubernetesAPIRights(), []string{"kubernetesApi.enabled=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			on := render(t, agentChart, "single.yaml", "--set", strings.Join(c.on, ","))
			wanted := parse(t, c.manifest)
			for key, want := range wanted {
				assert.NotContains(t, off, key)
				require.Contains(t, on, key)
				assert.Equal(t, want.Object, withoutHelm(t, on[key]).Object, key)
			}
			assert.Len(t, on, len(off)+len(wanted))
		})
	}
}

// TestChart_RightsOfValues: where, and for whom.
func TestChart_RightsOfValues(t *testing.T) {
	all := render(t, agentChart, "namespaced.yaml", "--set", "manifests.enabled=true,kubernetesApi.enabled=true,kubernetesApi.view=false,"+
		"kubernetesApi.users={alice},kubernetesApi.groups={shop,ops}")
	for _, ns := range []string{"shop", "shop-staging"} {
		assert.Equal(t, "pipeops-agent-manifests", field[string](t, all["RoleBinding pipeops-agent-manifests in "+ns], "roleRef", "name"))
	}
	assert.NotContains(t, all, "ClusterRole pipeops-agent-manifests-cluster")
	assert.NotContains(t, all, "ClusterRoleBinding pipeops-runners-view")
	var names []any
	for _, rule := range field[[]any](t, all["ClusterRole pipeops-agent-kubernetes-api"], "rules") {
		names = append(names, rule.(map[string]any)["resourceNames"])
	}
	assert.Equal(t, []any{[]any{"alice"}, []any{"shop", "ops"}}, names)
}
