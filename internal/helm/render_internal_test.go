package helm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

// become has a process render a chart for release r.
func become(t *testing.T, archive []byte, given map[string]any) (*rendered, error) {
	t.Helper()
	caps := common.DefaultCapabilities.Copy()
	r := renderer{Process: rendertest.Process(t), key: runnerapi.Key{Namespace: "production", Name: "r"}, revision: 1, caps: caps}
	return r.do(t.Context(), archive, values{given: given})
}

func TestRender_NamesTemplateAndLine(t *testing.T) {
	for what, c := range map[string]struct {
		template string
		says     []string
	}{
		"syntax":    {"a: b\n{{ if }}\n", []string{"web/templates/a.yaml:2"}},
		"function":  {"a: b\n\n{{ nothing 1 }}\n", []string{"web/templates/a.yaml:3", "nothing"}},
		"required":  {"a: {{ required \"set greeting\" .Values.greeting }}\n", []string{"web/templates/a.yaml:1", "set greeting"}},
		"nil":       {"a: b\nb: {{ .Values.a.b.c }}\n", []string{"web/templates/a.yaml:2", "nil pointer"}},
		"YAML":      {"a: b\n  c: d\n", []string{"web/templates/a.yaml", "line 2"}},
		"no kind":   {"apiVersion: v1\nmetadata: {name: x}\n", []string{"web/templates/a.yaml", "Kind"}},
		"recursion": {`{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`, []string{"web/templates/a.yaml"}}, // by its depth or its memory, whichever is reached first
	} {
		t.Run(what, func(t *testing.T) {
			_, err := become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/templates/a.yaml", c.template), nil)
			p := refusal(t, err)
			assert.Contains(t, []problem.Code{problem.Invalid, problem.TooLarge}, p.Code)
			assert.Equal(t, "chart", p.Field)
			for _, s := range c.says {
				assert.Contains(t, p.Detail, s)
			}
		})
	}
	schema := `{"properties":{"replicas":{"type":"integer"}}}`
	_, err := become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/values.schema.json", schema), map[string]any{"replicas": "many"})
	assert.Contains(t, refusal(t, err).Detail, "replicas")
	_, err = become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML+"kubeVersion: '>=99'\n"), nil)
	assert.Contains(t, refusal(t, err).Detail, "wants Kubernetes >=99")
}

// TestRender_RefusesAliases has aliases in a template, and in a release that another program
// stored. They must not be expanded in the agent.
func TestRender_RefusesAliases(t *testing.T) {
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: &a " + strings.Repeat("x", 64<<10) + "\n"
	for i := range 200 {
		bomb += fmt.Sprintf("  k%d: *a\n", i)
	}
	_, err := become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/templates/a.yaml", bomb), nil)
	assert.Contains(t, refusal(t, err).Detail, "aliases (*NAME) stand for more than")
	_, err = parseObjects("release web", bomb, "")
	assert.Contains(t, refusal(t, err).Detail, "aliases (*NAME) stand for more than")
	_, err = objectsOf(nil, map[string]string{"web/templates/a.yaml": bomb})
	assert.Contains(t, refusal(t, err).Detail, "aliases (*NAME) stand for more than")
}

// TestPolicy_Attributes expects every object, also hooks and lists, and every container.
func TestPolicy_Attributes(t *testing.T) {
	made, err := become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/crds/c.yaml", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c}}",
		"web/templates/a.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: b}
  spec:
    replicas: 7
    template: {spec: {initContainers: [{name: i, image: init:1}], containers: [{name: c, image: web:1, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: d, annotations: {helm.sh/hook: "post-install,pre-delete"}}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: job:1}]}}}}}
`), nil)
	require.NoError(t, err)
	in, err := objectIntents(made.objects, meta.NewDefaultRESTMapper(nil))
	require.NoError(t, err)
	require.Len(t, in, 4)
	byKind := map[string]runnerapi.ObjectIntent{}
	for _, i := range in {
		byKind[i.Kind] = i
	}
	assert.Contains(t, byKind, "CustomResourceDefinition.apiextensions.k8s.io")
	assert.Contains(t, byKind, "ConfigMap")
	assert.Equal(t, []runnerapi.CountIntent{{Field: "spec.replicas", Pods: 7}}, byKind["Deployment.apps"].Counts)
	assert.Equal(t, []runnerapi.ContainerIntent{
		{Field: "spec.template.spec.containers[0]", Name: "c", Image: "web:1", Limits: runnerapi.ResourceAmounts{CPU: "1", Memory: "1Gi"}},
		{Field: "spec.template.spec.initContainers[0]", Name: "i", Image: "init:1"},
	}, byKind["Deployment.apps"].Containers)
	assert.Equal(t, "job:1", byKind["CronJob.batch"].Containers[0].Image)
	made, err = become(t, rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/templates/a.yaml",
		"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: {name: c, image: hidden:1}}}"), nil)
	require.NoError(t, err)
	_, err = objectIntents(made.objects, meta.NewDefaultRESTMapper(nil))
	assert.Equal(t, problem.Invalid, refusal(t, err).Code, "what cannot be read is not waved through")
}

// TestChart_ForbiddenObjects has kinds that no policy can allow (see internal/denylist), and
// objects outside the release.
func TestChart_ForbiddenObjects(t *testing.T) {
	b := limits{denylist.Agent{Namespace: "pipeops"}, "production"}
	for text, says := range map[string]string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}":                           "is in namespace kube-system",
		"{apiVersion: v1, kind: Namespace, metadata: {name: a}}":                                                   "no chart makes a namespace",
		"{apiVersion: v1, kind: ConfigMap, metadata: {}}":                                                          "lacks one of",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}}": "a.yaml): the agent applies no such object: through admission",
	} {
		objects, err := parseObjects("a.yaml", text, "")
		require.NoError(t, err)
		assert.Contains(t, refusal(t, b.check(objects[0])).Detail, says, text)
	}
	objects, err := parseObjects("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: production}}", "")
	require.NoError(t, err)
	assert.NoError(t, b.check(objects[0]))
	objects, err = parseObjects("a.yaml", "{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: a}}]}", "")
	require.NoError(t, err)
	assert.NoError(t, b.check(objects[0]), "Helm's own client knows the kind by the list's")
}

const chartYAML = "apiVersion: v2\nname: web\nversion: 1.4.2\n"

var refusal = problemtest.Of
