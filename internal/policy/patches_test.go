package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// patching returns the deployment of App web with a patch of its pods' spec, in YAML.
func patching(t *testing.T, fields string) runnerapi.Intent {
	t.Helper()
	return deploy(func(s *runnerapi.AppSpec) {
		s.PodAnnotations, s.NodeSelector = map[string]string{"helm.sh/a": "b"}, map[string]string{"disk": "fast"}
		s.Metrics = &runnerapi.MetricsPort{Port: 1} // whose annotations no rule has to name
		p := runnerapi.Patch{}
		require.NoError(t, decode.Text.YAML([]byte("patch: {spec: {template: {spec: {"+fields+"}}}}"), &p))
		s.Patches = []runnerapi.Patch{p}
	})
}

const sidecar = "containers: [{name: proxy, image: 'registry.example.com/proxy:1', resources: {limits: {cpu: 100m, memory: 64Mi}}}]"

func TestPolicy_PatchesNeedManifests(t *testing.T) {
	require.NoError(t, load(t, "preset: full").Decide(patching(t, sidecar)))
	for text, want := range map[string]string{
		"":                                       "", // the default
		"rules: [{name: apps}]":                  "",
		"rules: [{name: apps, commands: ['*']}]": "",
		"rules: [{name: a, commands: ['*', apply-manifests], kinds: [ConfigMap]}]":                                     "rules[0].kinds",
		"rules: [{name: a, commands: [apply-manifests], kinds: [Deployment.apps], namespaces: [other]}, {name: apps}]": "",
		"rules: [{name: a, deny: true, commands: [apply-manifests]}, {name: apps}]":                                    "rules[0]",
	} {
		e := refusal(t, load(t, text).Decide(patching(t, sidecar)))
		assert.Equal(t, "patches", e.Field, text)
		assert.Contains(t, e.Detail, "patches have to be allowed as manifests", text)
		if want == "" {
			want = "pipeops-agent policy allow apply-manifests --runner ci -n shop --kind Deployment.apps"
		}
		assert.Contains(t, e.Fix, want, text)
		require.NoError(t, load(t, text).Decide(deploy(func(*runnerapi.AppSpec) {})), "without patches: %s", text)
	}
}

// TestPolicy_PatchesWithinRules: both the rule for Apps and that for manifests bound a patch.
func TestPolicy_PatchesWithinRules(t *testing.T) {
	for bound, c := range map[string]struct{ allowed, refused, field string }{
		"images: [registry.example.com]": {sidecar, "initContainers: [{name: a, image: nginx, restartPolicy: Always}]", "patches[0].patch.spec.template.spec.initContainers[0].image"},
		"maxResources: {memory: 1Gi}":    {sidecar, "containers: [{name: a, image: b}]", "patches[0].patch.spec.template.spec.containers[1].resources.limits.memory"},
		"placement: [nodeSelector/disk, toleration/gpu]": {
			"tolerations: [{key: gpu, operator: Exists}]", "tolerations: [{operator: Exists}]", "patches[0].patch.spec.template.spec.tolerations[0]",
		},
		"placement: [nodeSelector/*]": {
			"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]}}}",
			"nodeName: n1", "patches[0].patch.spec.template.spec.nodeName",
		},
		"placement: [nodeSelector/disk, nodeSelector/zone]": {
			"nodeSelector: {zone: a}", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: pool, operator: Exists}]}}]}}",
			"patches[0].patch.spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0]",
		},
	} {
		for where, rules := range map[string]string{
			"apps":      "rules: [{name: m, commands: [apply-manifests], kinds: ['*']}, {name: apps, " + bound + "}]",
			"manifests": "rules: [{name: m, commands: [apply-manifests], kinds: [Deployment.apps], " + bound + "}, {name: apps}]",
		} {
			p := load(t, rules)
			require.NoError(t, p.Decide(patching(t, c.allowed)), "%s %s", where, bound)
			e := refusal(t, p.Decide(patching(t, c.refused)))
			assert.Equal(t, c.field, e.Field, where)
		}
	}
	open := "{name: m, commands: [apply-manifests], kinds: ['*']}"
	annotated := deploy(func(s *runnerapi.AppSpec) {
		s.Patches = []runnerapi.Patch{{Patch: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": "b"}}}}}
	})
	assert.Equal(t, "patches[0].patch.metadata.annotations.example.com/a", refusal(t, load(t, "rules: ["+open+", {name: apps}]").Decide(annotated)).Field)
	outside := deploy(func(s *runnerapi.AppSpec) {
		s.Ports = []runnerapi.Port{{Port: 80}}
		s.Patches = []runnerapi.Patch{{Target: runnerapi.PatchTarget{Kind: "Service"}, Patch: map[string]any{"spec": map[string]any{"type": "LoadBalancer"}}}}
	})
	e := refusal(t, load(t, "rules: ["+open+", {name: apps, public: false}]").Decide(outside))
	assert.Equal(t, "patches[0].patch.spec.type", e.Field)
	require.NoError(t, load(t, "rules: ["+open+", {name: apps}]").Decide(outside))
}

// TestPolicy_PatchesOfAutoscaler: a scale command makes it later, without a spec to decide about.
func TestPolicy_PatchesOfAutoscaler(t *testing.T) {
	scaled := deploy(func(s *runnerapi.AppSpec) {
		s.Patches = []runnerapi.Patch{{
			Target: runnerapi.PatchTarget{Kind: "HorizontalPodAutoscaler"},
			Patch:  map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": "b"}}},
		}}
	})
	p := load(t, "rules: [{name: m, commands: [apply-manifests], kinds: [Deployment.apps]}, {name: apps, annotations: [example.com/*]}]")
	assert.Contains(t, refusal(t, p.Decide(scaled)).Detail, "HorizontalPodAutoscaler.autoscaling")
}

func TestPolicy_PatchesApproved(t *testing.T) {
	p := load(t, "rules: [{name: m, commands: [apply-manifests], kinds: ['*'], approval: 10m}, {name: apps}]")
	assert.Contains(t, refusal(t, p.Decide(patching(t, sidecar))).Detail, "wants an approval")
	p = load(t, "rules: [{name: m, commands: [apply-manifests], kinds: ['*'], approval: 10m}, {name: apps, approval: 10m}]")
	i := patching(t, sidecar)
	assert.Equal(t, runnerapi.CodeApprovalRequired, problemtest.Of(t, p.Decide(i), "not asked yet").Code)
	i.Approved = true
	require.NoError(t, p.Decide(i))
}

func TestPolicy_BrokenPatch(t *testing.T) {
	e := problemtest.Of(t, load(t, "preset: full").Decide(patching(t, "hostAlias: []")), "an unknown field")
	assert.Equal(t, problem.Invalid, e.Code)
	assert.Equal(t, "patches[0].patch.spec.template.spec.hostAlias", e.Field)
}
