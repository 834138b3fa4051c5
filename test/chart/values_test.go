package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// carried is a value, and where a rendered object has it.
type carried struct{ value, json, path, want string }

const (
	pod  = "spec.template.spec."
	main = pod + "containers.0."
)

// ofPods are the values that every workload of both charts takes.
var ofPods = []carried{
	{"extraEnv", `[{"name":"A","value":"b"}]`, main + "env", `[{"name":"A","value":"b"}]`},
	{"extraEnvFrom", `[{"secretRef":{"name":"more"}}]`, main + "envFrom", `[{"secretRef":{"name":"more"}}]`},
	{"extraVolumes", `[{"name":"more","emptyDir":{}}]`, pod + "volumes", `[{"name":"more","emptyDir":{}}]`},
	{"extraVolumeMounts", `[{"name":"more","mountPath":"/more"}]`, main + "volumeMounts", `[{"name":"more","mountPath":"/more"}]`},
	{"podSecurityContext", `{"runAsUser":1000}`, pod + "securityContext", `{"runAsUser":1000,"runAsNonRoot":true}`},
	{"securityContext", `{"seLinuxOptions":{"level":"s0"}}`, main + "securityContext", `{"seLinuxOptions":{"level":"s0"},"readOnlyRootFilesystem":true}`},
	{"startupProbe", `{"failureThreshold":90}`, main + "startupProbe", `{"failureThreshold":90,"periodSeconds":1}`},
	{"livenessProbe", `{"timeoutSeconds":9}`, main + "livenessProbe", `{"timeoutSeconds":9,"periodSeconds":10}`},
	{"readinessProbe", `{"initialDelaySeconds":7}`, main + "readinessProbe", `{"initialDelaySeconds":7}`},
	{"hostAliases", `[{"ip":"192.0.2.1","hostnames":["cp.example.com"]}]`, pod + "hostAliases", `[{"ip":"192.0.2.1","hostnames":["cp.example.com"]}]`},
	{"dnsConfig", `{"searches":["example.com"]}`, pod + "dnsConfig", `{"searches":["example.com"]}`},
	{"priorityClassName", `"high"`, pod + "priorityClassName", `"high"`},
	{"nodeSelector", `{"disk":"fast"}`, pod + "nodeSelector", `{"disk":"fast"}`},
	{"tolerations", `[{"operator":"Exists"}]`, pod + "tolerations", `[{"operator":"Exists"}]`},
	{"affinity", `{"nodeAffinity":{}}`, pod + "affinity", `{"nodeAffinity":{}}`},
	{"imagePullSecrets", `[{"name":"registry"}]`, pod + "imagePullSecrets", `[{"name":"registry"}]`},
	{"podLabels", `{"team":"a"}`, "spec.template.metadata.labels", `{"team":"a"}`},
	{"podAnnotations", `{"team":"a"}`, "spec.template.metadata.annotations", `{"team":"a"}`},
	{"commonLabels", `{"team":"a"}`, "spec.template.metadata.labels", `{"team":"a"}`},
	{"commonLabels", `{"team":"a"}`, "metadata.labels", `{"team":"a"}`},
	{"serviceAccount.name", `"robot"`, pod + "serviceAccountName", `"robot"`},
	{"image.pullPolicy", `"Always"`, main + "imagePullPolicy", `"Always"`},
}

// TestChart_PodValues: each value, set once.
func TestChart_PodValues(t *testing.T) {
	for _, c := range ofPods {
		isCarried(t, agentChart, "single.yaml", "Deployment pipeops-agent", c)
		isCarried(t, controlChart, "apart.yaml", "StatefulSet pipeops-controlplane", c)
		isCarried(t, controlChart, "apart.yaml", "Deployment pipeops-controlplane-gateway", c)
	}
	for _, c := range []carried{
		{"extraArgs", `["--stabilization=1m"]`, main + "args", `["run","--stabilization=1m"]`},
		{"replicaCount", "4", "spec.replicas", "4"},
		{"resources", `{"limits":{"cpu":"1"}}`, main + "resources", `{"limits":{"cpu":"1","memory":"256Mi"}}`},
		{"updateStrategy", `{"type":"Recreate","rollingUpdate":null}`, "spec.strategy", `{"type":"Recreate"}`},
		{"terminationGracePeriodSeconds", "60", pod + "terminationGracePeriodSeconds", "60"},
		{"topologySpreadConstraints", `[{"topologyKey":"zone"}]`, pod + "topologySpreadConstraints", `[{"topologyKey":"zone"}]`},
	} {
		isCarried(t, agentChart, "single.yaml", "Deployment pipeops-agent", c)
	}
	for _, c := range []carried{
		{"extraArgs", `["--pprof-listen=:6060"]`, main + "args", `["serve","--pprof-listen=:6060"]`},
		{"replicaCount", "4", "spec.replicas", "4"},
		{"resources", `{"limits":{"cpu":"1"}}`, main + "resources", `{"limits":{"cpu":"1","memory":"1Gi"}}`},
		{"updateStrategy", `{"type":"OnDelete"}`, "spec.updateStrategy", `{"type":"OnDelete"}`},
		{"terminationGracePeriodSeconds", "60", pod + "terminationGracePeriodSeconds", "60"},
		{"topologySpreadConstraints", `[{"topologyKey":"zone"}]`, pod + "topologySpreadConstraints", `[{"topologyKey":"zone"}]`},
	} {
		isCarried(t, controlChart, "apart.yaml", "StatefulSet pipeops-controlplane", c)
	}
	for _, c := range []carried{
		{"gateway.apart.extraArgs", `["--gateway-hsts=1h"]`, main + "args", `["gateway","serve","--gateway-hsts=1h"]`},
		{"gateway.apart.updateStrategy", `{"rollingUpdate":{"maxSurge":2}}`, "spec.strategy.rollingUpdate", `{"maxSurge":2,"maxUnavailable":0}`},
		{"gateway.apart.replicaCount", "5", "spec.replicas", "5"},
	} {
		isCarried(t, controlChart, "apart.yaml", "Deployment pipeops-controlplane-gateway", c)
	}
}

// TestChart_ObjectValues: Services, budgets and accounts.
func TestChart_ObjectValues(t *testing.T) {
	for _, c := range []carried{
		{"serviceAccount.annotations", `{"role":"a"}`, "metadata.annotations", `{"role":"a"}`},
		{"commonLabels", `{"team":"a"}`, "metadata.labels", `{"team":"a"}`},
	} {
		isCarried(t, agentChart, "single.yaml", "ServiceAccount pipeops-agent", c)
		isCarried(t, controlChart, "apart.yaml", "ServiceAccount pipeops-controlplane", c)
	}
	budget := carried{"podDisruptionBudget.maxUnavailable", `"50%"`, "spec.maxUnavailable", `"50%"`}
	isCarried(t, agentChart, "single.yaml", "PodDisruptionBudget pipeops-agent", budget)
	isCarried(t, controlChart, "apart.yaml", "PodDisruptionBudget pipeops-controlplane", budget)
	isCarried(t, controlChart, "apart.yaml", "PodDisruptionBudget pipeops-controlplane-gateway", budget)
	isCarried(t, agentChart, "single.yaml", "Service pipeops-agent-metrics", carried{"metrics.service.annotations", `{"a":"b"}`, "metadata.annotations", `{"a":"b"}`})
	for prefix, service := range map[string]string{"": "Service pipeops-controlplane", "gateway.": "Service pipeops-controlplane-gateway"} {
		port := map[string]string{"": "api", "gateway.": "https"}[prefix]
		for _, c := range []carried{
			{"service.type", `"NodePort"`, "spec.type", `"NodePort"`},
			{"service.annotations", `{"a":"b"}`, "metadata.annotations", `{"a":"b"}`},
			{"service.labels", `{"a":"b"}`, "metadata.labels", `{"a":"b"}`},
			{"service.loadBalancerClass", `"own"`, "spec.loadBalancerClass", `"own"`},
			{"service.loadBalancerSourceRanges", `["192.0.2.0/24"]`, "spec.loadBalancerSourceRanges", `["192.0.2.0/24"]`},
			{"service.externalTrafficPolicy", `"Local"`, "spec.externalTrafficPolicy", `"Local"`},
			{"service.clusterIP", `"10.43.0.9"`, "spec.clusterIP", `"10.43.0.9"`},
			{"service.ipFamilyPolicy", `"PreferDualStack"`, "spec.ipFamilyPolicy", `"PreferDualStack"`},
			{"service.ipFamilies", `["IPv6"]`, "spec.ipFamilies", `["IPv6"]`},
			{"service.ports." + port, "4443", "spec.ports.0", `{"port":4443}`},
			{"service.nodePorts", `{"` + port + `":30443}`, "spec.ports.0", `{"nodePort":30443}`},
		} {
			c.value = prefix + c.value
			isCarried(t, controlChart, "apart.yaml", service, c)
		}
	}
}

func isCarried(t *testing.T, chart, values, object string, c carried) {
	t.Helper()
	t.Run(object+"/"+c.value, func(t *testing.T) {
		all := render(t, chart, values, "--set-json", c.value+"="+c.json)
		require.Contains(t, all, object)
		var want any
		require.NoError(t, json.Unmarshal([]byte(c.want), &want))
		got := at(t, all[object].Object, c.path)
		switch want := want.(type) {
		case map[string]any:
			require.IsType(t, want, got)
			assert.Subset(t, got, want)
		case []any:
			assert.Subset(t, got, want)
		default:
			assert.Equal(t, want, got)
		}
	})
}

// at is the field of an object at a path, whose numbers are indices.
func at(t *testing.T, value any, path string) any {
	t.Helper()
	for key := range strings.SplitSeq(path, ".") {
		if i, err := strconv.Atoi(key); err == nil {
			value = value.([]any)[i]
			continue
		}
		next, found := value.(map[string]any)[key]
		require.True(t, found, "%s: there is no %s", path, key)
		value = next
	}
	return value
}

// TestChart_OverridesNames: the agent's Deployment and what belongs to it, and all of the control
// plane.
func TestChart_OverridesNames(t *testing.T) {
	for _, value := range []string{"nameOverride", "fullnameOverride"} {
		agent := render(t, agentChart, "single.yaml", "--set", value+"=robot")
		for _, object := range []string{"Deployment robot", "ConfigMap robot", "NetworkPolicy robot", "PodDisruptionBudget robot", "ServiceAccount robot", "Service pipeops-agent-metrics"} {
			assert.Contains(t, agent, object, value)
		}
		assert.Equal(t, map[string]any{"app.kubernetes.io/name": "pipeops-agent"},
			field[map[string]any](t, agent["Deployment robot"], "spec", "selector", "matchLabels"), "what finds the pods finds them still")
	}
	_, err := tryHelm("template", "x", agentChart, "--values", agentChart+"/ci/single.yaml", "--set", "nameOverride=robot,selfUpdate.enabled=true")
	require.ErrorContains(t, err, "selfUpdate.enabled, fullnameOverride: both are set")

	full := render(t, controlChart, "apart.yaml", "--set", "fullnameOverride=plane")
	for _, object := range []string{"StatefulSet plane", "Deployment plane-gateway", "Service plane", "Service plane-gateway", "ConfigMap plane", "ServiceAccount plane"} {
		assert.Contains(t, full, object)
	}
	named := render(t, controlChart, "apart.yaml", "--set", "nameOverride=hub")
	require.Contains(t, named, "StatefulSet pipeops-controlplane-hub")
	labels := field[map[string]any](t, named["StatefulSet pipeops-controlplane-hub"], "spec", "selector", "matchLabels")
	assert.Equal(t, "hub", labels["app.kubernetes.io/name"])
	assert.Equal(t, labels, field[map[string]any](t, named["Service pipeops-controlplane-hub"], "spec", "selector"))
	gateways := field[map[string]any](t, named["Deployment pipeops-controlplane-hub-gateway"], "spec", "selector", "matchLabels")
	assert.Equal(t, "hub-gateway", gateways["app.kubernetes.io/name"])
}

// TestChart_RightsFollowServiceAccount: each binding, each admission policy and the agent itself
// name the same account.
func TestChart_RightsFollowServiceAccount(t *testing.T) {
	args := []string{"--set", "serviceAccount.name=robot,serviceAccount.create=false,selfUpdate.enabled=true,sources.enabled=true,nodes.enabled=true,kubernetesApi.enabled=true"}
	all := render(t, agentChart, "single.yaml", args...)
	assert.NotContains(t, all, "ServiceAccount robot")
	assert.NotContains(t, all, "ServiceAccount pipeops-agent")
	assert.Equal(t, "robot", settings(all, "pipeops-agent")["PIPEOPS_SERVICE_ACCOUNT"])
	bound := 0
	for key, o := range all {
		subjects, found := o.Object["subjects"].([]any)
		if !found || subjects[0].(map[string]any)["kind"] != "ServiceAccount" {
			continue
		}
		bound++
		assert.Equal(t, "robot", subjects[0].(map[string]any)["name"], key)
	}
	assert.Greater(t, bound, 4)
	text := helm(t, append([]string{"template", "x", agentChart, "--namespace", "pipeops", "--values", agentChart + "/ci/single.yaml"}, args...)...)
	assert.Contains(t, text, `"system:serviceaccount:pipeops:robot"`)
	assert.NotContains(t, text, "system:serviceaccount:pipeops:pipeops-agent")
	assert.Contains(t, text, `s.name == "robot"`)
	assert.NotContains(t, settings(render(t, agentChart, "single.yaml"), "pipeops-agent"), "PIPEOPS_SERVICE_ACCOUNT")
}

func TestChart_ReplacesRegistry(t *testing.T) {
	image := func(repository string) any {
		all := render(t, agentChart, "single.yaml", "--set", "global.imageRegistry=mirror.example.com:5000/all/,image.tag=v1,image.repository="+repository)
		return container(t, all["Deployment pipeops-agent"])["image"]
	}
	for _, repository := range []string{"pipeops/agent", "registry.example.com/pipeops/agent", "localhost:5000/pipeops/agent"} {
		assert.Equal(t, "mirror.example.com:5000/all/pipeops/agent:v1", image(repository), repository)
	}
	for key, o := range render(t, controlChart, "apart.yaml", "--set", "global.imageRegistry=mirror.example.com") {
		if o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet" {
			assert.Equal(t, "mirror.example.com/pipeops/controlplane:dev", container(t, o)["image"], key)
		}
	}
}

// TestChart_MonitorLabels: both kinds of the Prometheus operator have labels and the interval.
func TestChart_MonitorLabels(t *testing.T) {
	for chart, values := range map[string]string{agentChart: "single.yaml", controlChart: "apart.yaml"} {
		names := map[string][]string{agentChart: {"pipeops-agent"}, controlChart: {"pipeops-controlplane", "pipeops-controlplane-gateway"}}[chart]
		for value, endpoints := range map[string]string{"podMonitor": "podMetricsEndpoints", "serviceMonitor": "endpoints"} {
			kind := strings.ToUpper(value[:1]) + value[1:]
			all := render(t, chart, values, "--set", "metrics.enabled=true,metrics."+value+".enabled=true,metrics."+value+".labels.release=prom,metrics."+value+".interval=45s")
			for _, name := range names {
				monitor := all[kind+" "+name]
				require.NotNil(t, monitor, "%s %s", kind, name)
				assert.Equal(t, "prom", monitor.GetLabels()["release"])
				assert.Equal(t, []any{map[string]any{"port": "metrics", "path": "/metrics", "interval": "45s"}}, field[[]any](t, monitor, "spec", endpoints))
				isSelected(t, all, monitor.Object, kind)
			}
		}
	}
}

// isSelected requires that a monitor's selector meets exactly one Service, or the pods of one
// workload.
func isSelected(t *testing.T, all objects, monitor map[string]any, kind string) {
	t.Helper()
	met := 0
	for _, o := range all {
		labels := map[string]any{}
		switch {
		case kind == "ServiceMonitor" && o.GetKind() == "Service":
			for key, value := range o.GetLabels() {
				labels[key] = value
			}
		case kind == "PodMonitor" && (o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet"):
			labels = at(t, o.Object, "spec.template.metadata.labels").(map[string]any)
		}
		wanted := at(t, monitor, "spec.selector.matchLabels").(map[string]any)
		both := maps.Clone(labels)
		maps.Copy(both, wanted)
		if len(labels) > 0 && maps.Equal(both, labels) {
			met++
		}
	}
	assert.Equal(t, 1, met)
}

// TestChart_ExtraObjects: an extra object is an object, or a text that Helm renders.
func TestChart_ExtraObjects(t *testing.T) {
	for _, chart := range []string{agentChart, controlChart} {
		values := map[string]string{agentChart: "single.yaml", controlChart: "trial.yaml"}[chart]
		all := render(t, chart, values, "--set-json", `extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},`+
			`"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-b}"]`)
		assert.Contains(t, all, "ConfigMap a")
		assert.Contains(t, all, "ConfigMap "+filepath.Base(chart)+"-b")
	}
}

// TestChart_WarnsOfWeakPods: the notes name each value that weakens the pod.
func TestChart_WarnsOfWeakPods(t *testing.T) {
	const said = `extraObjects=["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: said}\ndata: {text: {{ include \"pipeops.weakened\" . | toJson }}}"]`
	for _, chart := range []string{agentChart, controlChart} {
		values := map[string]string{agentChart: "single.yaml", controlChart: "trial.yaml"}[chart]
		warning := func(args ...string) string {
			return settings(render(t, chart, values, append([]string{"--set-json", said}, args...)...), "said")["text"]
		}
		assert.Empty(t, warning(), "the defaults weaken nothing")
		assert.Empty(t, warning("--set", "podSecurityContext.runAsUser=1000"))
		for set, value := range map[string]string{
			"podSecurityContext.runAsNonRoot=false":                  "podSecurityContext.runAsNonRoot",
			"podSecurityContext.runAsUser=0":                         "podSecurityContext.runAsUser",
			"podSecurityContext.seccompProfile.type=Unconfined":      "podSecurityContext.seccompProfile",
			"securityContext.allowPrivilegeEscalation=true":          "securityContext.allowPrivilegeEscalation",
			"securityContext.readOnlyRootFilesystem=false":           "securityContext.readOnlyRootFilesystem",
			"securityContext.capabilities.drop={NET_RAW}":            "securityContext.capabilities.drop",
			"securityContext.capabilities.add={SYS_ADMIN}":           "securityContext.capabilities.add",
			"securityContext.privileged=true":                        "securityContext.privileged",
			"securityContext.runAsUser=0":                            "securityContext.runAsUser",
			"extraVolumes[0].name=n,extraVolumes[0].hostPath.path=/": "extraVolumes: n",
			"networkPolicy.enabled=false":                            "networkPolicy.enabled",
		} {
			assert.Contains(t, warning("--set", set), "\n  "+value, set)
			assert.Equal(t, 1, strings.Count(warning("--set", set), "\n  "), set)
		}
		notes, err := os.ReadFile(filepath.Join(harness.Root(), chart, "templates", "NOTES.txt"))
		require.NoError(t, err)
		assert.Contains(t, string(notes), `{{- include "pipeops.weakened" . }}`)
	}
}

// TestChart_SharesPodTemplate compares two copies: Helm has no simple way for charts to share one.
func TestChart_SharesPodTemplate(t *testing.T) {
	const file = "templates/_pod.tpl"
	one, err := os.ReadFile(filepath.Join(harness.Root(), agentChart, file))
	require.NoError(t, err)
	other, err := os.ReadFile(filepath.Join(harness.Root(), controlChart, file))
	require.NoError(t, err)
	assert.Equal(t, string(one), string(other), "copy %s from one chart to the other", file)
}
