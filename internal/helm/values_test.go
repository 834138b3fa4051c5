package helm_test

import (
	"bytes"
	"encoding/json"
	"log"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// defaults is a chart with a sub-chart that prints its values.
func defaults(t *testing.T, values, below string) []byte {
	t.Helper()
	const printed = "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}%, annotations: {all: {{ omit .Values \"global\" | toJson | quote }}}}\nspec: {ports: [{port: 80}]}\n"
	return pack(t, map[string]string{
		"values.yaml": values, "templates/a.yaml": strings.ReplaceAll(printed, "%", ""),
		"charts/db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n", "charts/db/values.yaml": below,
		"charts/db/templates/b.yaml": strings.ReplaceAll(printed, "%", "-second"),
	})
}

// TestValues_ReuseLikeHelm compares each revision with that of Helm's own upgrade.
func TestValues_ReuseLikeHelm(t *testing.T) {
	one := defaults(t, "a: 1\nb: {c: 1, d: 1}\ngone: 1\ndb: {x: 1}\n", "x: 0\ny: 1\n")
	two := defaults(t, "a: 2\nb: {c: 2, d: 2, e: 2}\nnew: 2\ndb: {x: 2}\n", "x: 0\ny: 2\n")
	three := map[string]any{"b": map[string]any{"d": 3, "e": nil}, "db": map[string]any{"y": 3}}
	for name, upgrades := range map[string][]runnerapi.ReleaseSpec{
		"reuse":             {{ReuseValues: true}, {ReuseValues: true, Values: three}, {ReuseValues: true}},
		"reset-then-reuse":  {{ResetThenReuseValues: true}, {ResetThenReuseValues: true, Values: three}, {ReuseValues: true}, {Values: map[string]any{"a": 4}}},
		"replaced-defaults": {{ReuseValues: true, Values: map[string]any{"b": "text"}}, {ReuseValues: true, Values: three}, {ResetThenReuseValues: true}},
	} {
		t.Run(name, func(t *testing.T) {
			env := kubetest.ControlPlane(t)
			r := start(t, env.Agent)
			remove(t, env, name)
			var printed bytes.Buffer
			before := log.Writer()
			log.SetOutput(&printed)
			t.Cleanup(func() { log.SetOutput(before) })
			theirs := installed(t, name)
			first := map[string]any{"a": 9, "b": map[string]any{"c": 9}, "db": map[string]any{"x": 9}}
			for i, spec := range append([]runnerapi.ReleaseSpec{{ReuseValues: true, Values: first}}, upgrades...) {
				spec.Chart.Archive = two
				if i == 0 {
					spec.Chart.Archive = one
				}
				want := theirs(spec)
				printed.Reset()
				require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, name, spec).Status)
				assert.Empty(t, printed.String(), "a warning may have values")
				have := storedAs(t, env, name, i+1)
				assert.Equal(t, want.Manifest, have.Manifest, "revision %d", i+1)
				assert.JSONEq(t, jsonOf(t, want.Config), jsonOf(t, have.Config), "revision %d", i+1)
			}
		})
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// installed returns what has Helm install or upgrade a release in memory.
func installed(t *testing.T, name string) func(runnerapi.ReleaseSpec) *release.Release {
	t.Helper()
	cfg := action.NewConfiguration()
	secrets := driver.NewSecrets(fake.NewClientset().CoreV1().Secrets(production)) // without sub-charts, as in a cluster
	cfg.Releases, cfg.KubeClient = storage.Init(secrets), &kubefake.PrintingKubeClient{Out: &bytes.Buffer{}}
	cfg.Capabilities = common.DefaultCapabilities
	first := true
	return func(spec runnerapi.ReleaseSpec) *release.Release {
		chart, err := loader.LoadArchive(bytes.NewReader(spec.Chart.Archive))
		require.NoError(t, err)
		values := map[string]any{} // of its own: Helm changes them
		require.NoError(t, json.Unmarshal([]byte(jsonOf(t, spec.Values)), &values))
		if values == nil {
			values = map[string]any{}
		}
		var made any
		if first {
			first = false
			install := action.NewInstall(cfg)
			install.ReleaseName, install.Namespace = name, production
			made, err = install.RunWithContext(t.Context(), chart, values)
		} else {
			upgrade := action.NewUpgrade(cfg)
			upgrade.Namespace, upgrade.ReuseValues, upgrade.ResetThenReuseValues = production, spec.ReuseValues, spec.ResetThenReuseValues
			upgrade.ResetValues = !spec.ReuseValues && !spec.ResetThenReuseValues
			made, err = upgrade.RunWithContext(t.Context(), name, chart, values)
		}
		require.NoError(t, err)
		r, ok := made.(*release.Release)
		require.True(t, ok)
		return r
	}
}
