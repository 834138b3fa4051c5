package chartflags

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// parsed returns the values that flags give.
func parsed(t *testing.T, args ...string) *Values {
	t.Helper()
	var v Values
	f := pflag.NewFlagSet("deploy", pflag.ContinueOnError)
	v.Add(f)
	require.NoError(t, f.Parse(args))
	return &v
}

// mergedOf returns the values of flags in JSON.
func mergedOf(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	all, err := parsed(t, args...).Merged(strings.NewReader(stdin))
	out, jsonErr := json.Marshal(all)
	require.NoError(t, jsonErr)
	return string(out), err
}

// TestValues_HelmGrammar compares with what `helm template` shows of the same flags. A tag such as
// 1.10 stays text, and a long ID keeps all its digits.
func TestValues_HelmGrammar(t *testing.T) {
	for set, want := range map[string]string{
		"ingress.hosts[0].host=x": `{"ingress":{"hosts":[{"host":"x"}]}}`,
		"a=1,b=2":                 `{"a":1,"b":2}`,
		"l={a,b}":                 `{"l":["a","b"]}`,
		`ann.x\.y/z=v`:            `{"ann":{"x.y/z":"v"}}`,
		`s=a\,b`:                  `{"s":"a,b"}`,
		"a.b=1.10":                `{"a":{"b":"1.10"}}`,
		"a=007,b=1e3,c=-3,d=0":    `{"a":"007","b":"1e3","c":-3,"d":0}`,
		"a=9223372036854775807":   `{"a":9223372036854775807}`,
		"a=9223372036854775808":   `{"a":"9223372036854775808"}`,
		"a=true,b=False,c=null":   `{"a":true,"b":false,"c":null}`,
		"a=":                      `{"a":""}`,
	} {
		got, err := mergedOf(t, "", "--set", set)
		require.NoError(t, err, set)
		assert.JSONEq(t, want, got, set)
	}
}

// TestValues_Precedence: each flag overrides those before it in this order, wherever it stands.
func TestValues_Precedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte("a,b\n"), 0o600))
	got, err := mergedOf(t, "v: {file: 1, json: 1, set: 1, text: 1, of: 1}",
		"--set-file", "v.of="+file, "--set-string", "v.text=7,v.of=4", "--set", "v.set=6,v.text=3,v.of=3",
		"--set-json", `v.json=[5]`, "--set-json", `{"v": {"set": 2, "text": 2, "of": 2}}`, "-f", "-")
	require.NoError(t, err)
	assert.JSONEq(t, `{"v": {"file": 1, "json": [5], "set": 6, "text": "7", "of": "a,b\n"}}`, got)

	for flag, text := range map[string]string{"--set": "password=hunter1,hunter2", "--set-json": "a={hunter2"} {
		_, err = mergedOf(t, "", "--set", "a=b", flag, text)
		require.ErrorContains(t, err, flag+" number ")
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

// TestChartArchive_HelmLoader: links are followed, sub-charts are packed, and .helmignore is
// heeded.
func TestChartArchive_HelmLoader(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "web")
	for name, text := range map[string]string{
		"web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n", "web/.helmignore": "*.bak\n",
		"web/templates/old.yaml.bak": "not: {{ valid", "web/templates/a.yaml": "a", "shared.yaml": "shared",
		"sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n", "sub/templates/b.yaml": "b",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(outer, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(outer, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("../../shared.yaml", filepath.Join(dir, "templates", "linked.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "charts"), 0o750))
	require.NoError(t, os.Symlink("../../sub", filepath.Join(dir, "charts", "sub")))

	packed, err := archived(dir)
	require.NoError(t, err)
	chart, err := loader.LoadArchive(strings.NewReader(string(packed)))
	require.NoError(t, err)
	found := map[string]string{}
	for _, f := range chart.Templates {
		found[f.Name] = string(f.Data)
	}
	assert.Equal(t, map[string]string{"templates/a.yaml": "a", "templates/linked.yaml": "shared"}, found)
	require.Len(t, chart.Dependencies(), 1)
	assert.Equal(t, "b", string(chart.Dependencies()[0].Templates[0].Data))
}
