package chartflags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmvalues "helm.sh/helm/v4/pkg/cli/values"
	"helm.sh/helm/v4/pkg/getter"
	release "helm.sh/helm/v4/pkg/release/v1"
)

const inputs = "testdata/inputs"

// TestInputs_LikeHelm has charts and values that people brought. `helm template` gets the folder
// and the flags, the command the same, and Helm renders what the command would send.
func TestInputs_LikeHelm(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("a,b\n"), 0o600))
	for chart, flags := range map[string][]helmvalues.Options{
		"02-chart-set": {
			{ValueFiles: []string{filepath.Join(inputs, "01c-helm-values-merge-key-override.yaml")}},
			{Values: []string{"ingress.hosts[0].host=x"}}, {Values: []string{"a=1,b=2"}}, {Values: []string{"l={a,b}"}},
			{Values: []string{`ann.x\.y/z=v`}}, {Values: []string{`s=a\,b`}},
		},
		"03-chart-null-subchart": {{}, {Values: []string{"sub.resources.limits.cpu=1"}}, {Values: []string{"sub.resources.limits=null"}}},
		"04-chart-symlink":       {{}},
		"05-chart-helmignore":    {{}},
		"20-chart-set-forms": {
			{Values: []string{"hosts[0]=a,hosts[2]=c", "env[1].name=A", "list={}", "n=null", "name="}},
			{Values: []string{`ann.a\.b/c=1,ann.d=0x1,list={1,"2",x y}`}, StringValues: []string{"n=1,name=true"}},
			{Values: []string{"hosts={a}"}, JSONValues: []string{`env=[{"name":"A","value":1.5}]`, `{"ann":{"a":null},"n":12345678901}`}},
			{FileValues: []string{"name=" + text}, Values: []string{"hosts[0]=null", "list[0][1]=x"}},
		},
	} {
		for _, given := range flags {
			var args []string
			add := func(flag string, values []string) {
				for _, v := range values {
					args = append(args, flag, v)
				}
			}
			add("--values", given.ValueFiles)
			add("--set", given.Values)
			add("--set-string", given.StringValues)
			add("--set-json", given.JSONValues)
			add("--set-file", given.FileValues)
			t.Run(chart+" "+strings.Join(args, " "), func(t *testing.T) {
				dir := filepath.Join(inputs, chart)
				source, err := loader.LoadDir(dir)
				require.NoError(t, err)
				values, err := given.MergeValues(getter.Providers{})
				require.NoError(t, err)

				packed, err := archived(dir)
				require.NoError(t, err)
				sent, err := loader.LoadArchive(strings.NewReader(string(packed)))
				require.NoError(t, err)
				merged, err := parsed(t, args...).Merged(strings.NewReader(""))
				require.NoError(t, err)
				want, have := templated(t, source, values), templated(t, sent, merged)
				assert.Equal(t, want, have)
				assert.NotEmpty(t, have)
			})
		}
	}
}

// templated returns what `helm template` prints.
func templated(t *testing.T, chart *chartv2.Chart, values map[string]any) string {
	t.Helper()
	install := action.NewInstall(action.NewConfiguration())
	install.ReleaseName, install.Namespace, install.DryRunStrategy = "web", "shop", action.DryRunClient
	made, err := install.RunWithContext(t.Context(), chart, values)
	require.NoError(t, err)
	r, ok := made.(*release.Release)
	require.True(t, ok)
	return r.Manifest
}
