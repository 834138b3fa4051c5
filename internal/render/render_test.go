package render_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

func run(t *testing.T, j render.Job) (render.Result, error) {
	t.Helper()
	return rendertest.Process(t).Run(t.Context(), j)
}

func files(pairs ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

func all(r render.Result) string {
	var out strings.Builder
	for _, t := range r.Texts {
		fmt.Fprintf(&out, "# %s\n%s\n", t.Name, t.Body)
	}
	return out.String()
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n"

// chartFiles are a chart in the folder web.
func chartFiles(more ...string) map[string][]byte {
	return files(append([]string{
		"web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.2.3\n",
		"web/values.yaml", "image: one\nreplicas: 1\n",
		"web/templates/_helpers.tpl", `{{ define "name" }}{{ .Release.Name }}-web{{ end }}`,
		"web/templates/app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ include \"name\" . }}, namespace: {{ .Release.Namespace }}}\n" +
			"data: {image: {{ .Values.image | quote }}, replicas: {{ .Values.replicas | quote }}, kube: {{ .Capabilities.KubeVersion.Version | quote }}}\n",
		"web/templates/NOTES.txt", "thanks",
		"web/templates/test.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: test\n  annotations:\n    \"helm.sh/hook\": test\n",
	}, more...)...)
}

func TestRender_Manifests(t *testing.T) {
	j := render.Job{Type: render.Manifests, Path: "deploy", Files: files("deploy/b.yml", "b", "deploy/in/a.json", "a", "deploy/README.md", "no", "other.yaml", "no")}
	r, err := run(t, j)
	require.NoError(t, err)
	assert.Equal(t, []render.Text{{Name: "deploy/b.yml", Body: []byte("b")}, {Name: "deploy/in/a.json", Body: []byte("a")}}, r.Texts)
}

func TestRender_ManifestsIgnored(t *testing.T) {
	root := files(".github/workflows/ci.yml", "on: push", "package.json", "{}", "docker-compose.prod.yml", "no", "k8s/.hidden.yaml", "no",
		"k8s/cm.yaml", "a", "k8s/tests/a.yaml", "b", "k8s/tests/b.yaml", "no", "mkdocs.yml", "back", "values.yaml", "no",
		".sourceignore", "# note\r\n/values.yaml\n\n!mkdocs.yml\n", "k8s/.sourceignore", "tests/*\n!tests/a.yaml\n")
	names := func(at string) (names []string) {
		r, err := run(t, render.Job{Type: render.Manifests, Path: at, Files: root})
		require.NoError(t, err, at)
		for _, text := range r.Texts {
			names = append(names, text.Name)
		}
		return names
	}
	assert.Equal(t, []string{"k8s/cm.yaml", "k8s/tests/a.yaml", "mkdocs.yml"}, names(""))
	assert.Equal(t, []string{"k8s/cm.yaml", "k8s/tests/a.yaml"}, names("/k8s/"))
	assert.Equal(t, []string{"k8s/tests/b.yaml"}, names("k8s/tests/b.yaml"), "a file that is named")
	assert.Equal(t, []string{".github/workflows/ci.yml"}, names(".github"), "a folder that is named")
	_, err := run(t, render.Job{Type: render.Manifests, Files: files("package.json", "{}")})
	require.ErrorContains(t, err, "all 1 files in the repository whose names end in .yaml, .yml or .json are ignored")
}

func TestRender_Kustomization(t *testing.T) {
	r, err := run(t, render.Job{Type: render.Kustomize, Path: "overlays/production", Files: files(
		"base/kustomization.yaml", "resources: [one.yaml]\n", "base/one.yaml", configMap,
		"overlays/production/kustomization.yaml", "resources: [../../base]\nnamePrefix: production-\npatches: [{path: patch.yaml}]\nconfigMapGenerator: [{name: files, files: [settings.txt]}]\n",
		"overlays/production/patch.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: patched}\n",
		"overlays/production/settings.txt", "speed=*fast\n",
	)})
	require.NoError(t, err)
	assert.Contains(t, all(r), "name: production-one")
	assert.Contains(t, all(r), "a: patched")
	assert.Contains(t, all(r), "speed=*fast")
}

func TestRender_Chart(t *testing.T) {
	r, err := run(t, render.Job{
		Type: render.Chart, Path: "web", Release: "shop", Namespace: "production", KubeVersion: "v1.36.3",
		ValuesFiles: []string{"production.yaml"}, Values: "image: three",
		Files: chartFiles("production.yaml", "image: two\nreplicas: 5\n", "web/crds/thing.yaml", "kind: CustomResourceDefinition\n",
			"web/.helmignore", "templates/draft.yaml\nold/\n", "web/templates/draft.yaml", "{{ fail }}", "web/templates/old/x.yaml", "{{ fail }}"),
	})
	require.NoError(t, err)
	text := all(r)
	assert.Contains(t, text, `metadata: {name: shop-web, namespace: production}`)
	assert.Contains(t, text, `data: {image: "three", replicas: "5", kube: "v1.36.3"}`)
	assert.True(t, strings.HasPrefix(text, "# web/crds/thing.yaml"), text)
	assert.NotContains(t, text, "thanks")
	assert.Equal(t, []string{"web/templates/test.yaml"}, r.Skipped)
}

// deep is a kustomization of 2^n resources in a few bytes.
func deep(n int) map[string][]byte {
	out := files("0/kustomization.yaml", "resources: [a.yaml]\n", "0/a.yaml", configMap)
	for i := 1; i <= n; i++ {
		for _, side := range []string{"l", "r"} {
			out[fmt.Sprintf("%d/%s/kustomization.yaml", i, side)] = fmt.Appendf(nil, "namePrefix: %s\nresources: [../../%d]\n", side, i-1)
		}
		out[fmt.Sprintf("%d/kustomization.yaml", i)] = []byte("resources: [l, r]\n")
	}
	return out
}

func bomb() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return text
}

const prefixer = "apiVersion: builtin\nkind: PrefixSuffixTransformer\nmetadata: {name: p}\nprefix: a-\nfieldSpecs: [{path: metadata/name}]\n"

// TestRender_KustomizePlugins uses them in place of fields of a kustomization, with files of the
// repository.
func TestRender_KustomizePlugins(t *testing.T) {
	plugin := func(kind, more string) string {
		return "apiVersion: builtin\nkind: " + kind + "\nmetadata: {name: x}\n" + more + "\n"
	}
	result, err := run(t, render.Job{Type: render.Kustomize, Path: "prod", Files: files(
		"base/web.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, template: {spec: {containers: [{name: web, image: web}]}}}\n",
		"base/kustomization.yaml", "resources: [web.yaml]\n",
		"prod/kustomization.yaml", `resources: [../base]
generators:
- generate.yaml
transformers:
- prefix.yaml
- all.yaml
- |
  apiVersion: builtin
  kind: NamespaceTransformer
  metadata: {name: ns, namespace: production}
  fieldSpecs: [{path: metadata/namespace, create: true}]
`,
		"prod/prefix.yaml", prefixer,
		"prod/generate.yaml", plugin("ConfigMapGenerator", "name: settings\nenvs: [settings.env]\noptions: {disableNameSuffixHash: true}"),
		"prod/settings.env", "mode=fast\n", "prod/patch.yaml", "- {op: add, path: /spec/paused, value: true}\n",
		"prod/all.yaml", strings.Join([]string{
			plugin("LabelTransformer", "labels: {team: shop}\nfieldSpecs: [{path: metadata/labels, create: true}]"),
			plugin("AnnotationsTransformer", "annotations: {owner: ada}\nfieldSpecs: [{path: metadata/annotations, create: true}]"),
			plugin("ImageTagTransformer", "imageTag: {name: web, newName: registry.example.com/web, newTag: '2'}"),
			plugin("ReplicaCountTransformer", "replica: {name: web, count: 3}\nfieldSpecs: [{path: spec/replicas, kind: Deployment}]"),
			plugin("PatchTransformer", "path: patch.yaml\ntarget: {kind: Deployment}"),
		}, "---\n"),
	)})
	require.NoError(t, err)
	text := string(result.Texts[0].Body)
	for _, part := range []string{"name: a-web", "name: a-settings", "mode: fast", "team: shop", "owner: ada", "registry.example.com/web:2", "replicas: 3", "paused: true", "namespace: production"} {
		assert.Contains(t, text, part)
	}
}

func TestRender_NamesMistakes(t *testing.T) {
	kustomization := func(text string, more ...string) map[string][]byte {
		return files(append([]string{"kustomization.yaml", text, "one.yaml", configMap}, more...)...)
	}
	schema := func(text string) render.Job {
		return render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/values.schema.json", text)}
	}
	for name, c := range map[string]struct {
		job  render.Job
		part string
	}{
		"no manifests":        {render.Job{Type: render.Manifests, Path: "web", Files: files("a.yaml", "a")}, "no manifests in web"},
		"values":              {render.Job{Type: render.Chart, Path: "web", Files: chartFiles(), Values: "b: &b {a: 1}\nc: {<<: *b, a: 2}\na: 1\na: 2\n"}, `values: line 4: the key "a" is there twice`},
		"no kustomization":    {render.Job{Type: render.Kustomize, Files: files("a.yaml", "a")}, "no kustomization.yaml"},
		"over https":          {render.Job{Type: render.Kustomize, Files: kustomization("resources: [https://example.com/a.yaml]")}, "nothing is fetched"},
		"over git":            {render.Job{Type: render.Kustomize, Files: kustomization("resources: [github.com/a/b/c]", "github.com/a/b/c/kustomization.yaml", "")}, "nothing is fetched"},
		"over ssh":            {render.Job{Type: render.Kustomize, Files: kustomization("resources: ['git@example.com:a/b']")}, "nothing is fetched"},
		"a patch over https":  {render.Job{Type: render.Kustomize, Files: kustomization("patches: [{path: 'https://example.com/p.yaml'}]")}, "nothing is fetched"},
		"a file over https":   {render.Job{Type: render.Kustomize, Files: kustomization("configMapGenerator: [{name: a, files: ['k=https://example.com/p']}]")}, "nothing is fetched"},
		"an old base":         {render.Job{Type: render.Kustomize, Files: kustomization("bases: ['https://example.com/p']")}, "nothing is fetched"},
		"a replacement":       {render.Job{Type: render.Kustomize, Files: kustomization("replacements: [{path: 'https://example.com/p'}]")}, "nothing is fetched"},
		"a schema over https": {render.Job{Type: render.Kustomize, Files: kustomization("openapi: {path: 'https://example.com/p'}")}, "nothing is fetched"},
		"an absolute path":    {render.Job{Type: render.Kustomize, Files: kustomization("resources: [/etc/passwd]")}, "not a path within"},
		"out of it":           {render.Job{Type: render.Kustomize, Files: kustomization("resources: [../../etc/passwd]")}, "out of the repository"},
		"an exec plugin": {render.Job{Type: render.Kustomize, Files: kustomization("transformers: [p.yaml]",
			"p.yaml", "apiVersion: example.com/v1\nkind: Evil\nmetadata: {name: a, annotations: {config.kubernetes.io/function: 'exec: {path: ./evil.sh}'}}\n")}, "Evil of \"example.com/v1\" is a custom plugin"},
		"a container as plugin": {render.Job{Type: render.Kustomize, Files: kustomization("generators: [\"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {config.kubernetes.io/function: 'container: {image: a}'}}}\"]")},
			"is a custom plugin"},
		"a Go plugin":             {render.Job{Type: render.Kustomize, Files: kustomization("validators: ['{apiVersion: someteam.example.com/v1, kind: Validator, metadata: {name: a}}']")}, "is a custom plugin"},
		"plugins in a List":       {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: v1, kind: List, items: [{apiVersion: a/v1, kind: B, metadata: {name: a}}]}']")}, "is a custom plugin"},
		"a second document":       {render.Job{Type: render.Kustomize, Files: kustomization("transformers: [p.yaml]", "p.yaml", prefixer+"---\napiVersion: a/v1\nkind: B\nmetadata: {name: b}\n")}, "B of \"a/v1\" is a custom plugin"},
		"a chart as plugin":       {render.Job{Type: render.Kustomize, Files: kustomization("generators: ['{apiVersion: builtin, kind: HelmChartInflationGenerator, metadata: {name: a}, name: a, repo: https://example.com}']")}, "runs a program"},
		"no built-in plugin":      {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: Nope, metadata: {name: a}}']")}, "there is no built-in plugin \"Nope\""},
		"plugins over https":      {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['https://example.com/p.yaml']")}, "nothing is fetched"},
		"plugins of a folder":     {render.Job{Type: render.Kustomize, Files: kustomization("transformers: [p]", "p/kustomization.yaml", "resources: [p.yaml]", "p/p.yaml", prefixer)}, "no folders"},
		"a plugin's patch":        {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: PatchTransformer, metadata: {name: a}, PATH: https://example.com/p}']")}, "nothing is fetched"},
		"a plugin's patches":      {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: PatchStrategicMergeTransformer, metadata: {name: a}, paths: [https://example.com/p]}']")}, "nothing is fetched"},
		"a plugin's old patch":    {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: PatchJson6902Transformer, metadata: {name: a}, target: {kind: A, name: a}, path: ../../etc/passwd}']")}, "out of the repository"},
		"a plugin's replacement":  {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: ReplacementTransformer, metadata: {name: a}, replacements: [{path: https://example.com/p}]}']")}, "nothing is fetched"},
		"a plugin's target":       {render.Job{Type: render.Kustomize, Files: kustomization("transformers: ['{apiVersion: builtin, kind: ValueAddTransformer, metadata: {name: a}, targetFilePath: /etc/passwd}']")}, "not a path within"},
		"a plugin's file":         {render.Job{Type: render.Kustomize, Files: kustomization("generators: ['{apiVersion: builtin, kind: SecretGenerator, metadata: {name: a}, files: [k=https://example.com/p]}']")}, "nothing is fetched"},
		"a plugin's environment":  {render.Job{Type: render.Kustomize, Files: kustomization("generators: ['{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: a}, envs: [../a.env]}']")}, "out of the repository"},
		"a plugin's file is gone": {render.Job{Type: render.Kustomize, Files: kustomization("generators: ['{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: a}, env: none.env}']")}, "is not in the repository"},
		"a plugin with aliases":   {render.Job{Type: render.Kustomize, Files: kustomization("transformers: [bomb.yaml]", "bomb.yaml", bomb())}, "aliases"},
		"a chart in it":           {render.Job{Type: render.Kustomize, Files: kustomization("helmCharts: [{name: a, repo: 'https://example.com'}]")}, "helmCharts"},
		"a field with a typo":     {render.Job{Type: render.Kustomize, Files: kustomization("resource: [one.yaml]")}, "unknown field"},
		"a million resources":     {render.Job{Type: render.Kustomize, Path: "14", Files: deep(14)}, "counting what is loaded several times"},
		"aliases":                 {render.Job{Type: render.Kustomize, Files: kustomization("resources: [one.yaml, bomb.yaml]", "bomb.yaml", bomb())}, "aliases"},

		"no chart":                 {render.Job{Type: render.Chart, Path: "db", Files: chartFiles("db/a", "")}, "no Chart.yaml in db"},
		"a template with a typo":   {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", "a: {{ .Values.image | nope }}")}, `function "nope" not defined`},
		"a template that fails":    {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", `{{ fail "set image" }}`)}, "set image"},
		"a missing values file":    {render.Job{Type: render.Chart, Path: "web", ValuesFiles: []string{"none.yaml"}, Files: chartFiles()}, "none.yaml is not in the repository"},
		"values that are not YAML": {render.Job{Type: render.Chart, Path: "web", Values: "a: [", Files: chartFiles()}, "values"},
		"a missing dependency":     {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.2.3\ndependencies: [{name: db, version: 1.x, repository: 'https://example.com'}]\n")}, "lacks its dependencies db"},
		"values of a wrong type":   {schema(`{"properties":{"replicas":{"type":"string"}}}`), "replicas"},
		"a schema from elsewhere":  {schema(`{"$ref":"https://example.com/schema.json"}`), "not loaded from elsewhere"},
		"a schema in a file":       {schema(`{"$ref":"file:///etc/passwd"}`), "not loaded from elsewhere"},
		"a loop that fills":        {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", "{{ range until 1000000000 }}x{{ end }}")}, "web/templates/x.yaml:1:9"},
		"a text that fills":        {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", `{{ repeat 2000000000 "x" }}`)}, "repeat makes at most"},
		"loops that fill":          {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", "{{ $x := `x` }}{{ range 1000000 }}{{ $x = print $x $x }}{{ end }}")}, "web/templates/x.yaml takes more than 64 MiB of memory"},
		"an endless recursion":     {render.Job{Type: render.Chart, Path: "web", Files: chartFiles("web/templates/x.yaml", `{{ define "r" }}{{ template "r" . }}{{ end }}{{ template "r" . }}`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, c.job)
			p := problemtest.Of(t, err)
			assert.Contains(t, p.Error(), c.part)
			assert.NotEmpty(t, p.Fix)
		})
	}
}

func TestRender_StopsEndlessLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("renders as much as a child process may")
	}
	refused := outOfTime(t, rendertest.Process(t), render.Job{Type: render.Chart, Path: "web",
		Files: chartFiles("web/templates/x.yaml", "{{ range 1000000 }}{{ range 1000000 }}{{ end }}{{ end }}")})
	assert.Equal(t, problem.TooLarge, refused.Code)
	assert.Contains(t, refused.Detail, "rendering web/templates/x.yaml takes more than ")
}

// outOfTime runs a job without end, with as much patience as a busy machine needs to come to the
// first template.
func outOfTime(t *testing.T, p render.Process, job render.Job) *problem.Error {
	t.Helper()
	for p.Patience = 500 * time.Millisecond; ; p.Patience *= 2 {
		_, err := p.Run(t.Context(), job)
		refused := problemtest.Of(t, err)
		if strings.Contains(refused.Detail, "/templates/") || p.Patience > time.Minute {
			return refused
		}
	}
}

// TestRender_ReportsKill expects no message about the memory limit.
func TestRender_ReportsKill(t *testing.T) {
	p := render.Process{Command: []string{"sh", "-c", "kill -KILL $$"}}
	_, err := p.Run(t.Context(), render.Job{Type: render.Chart, Path: "web", Files: chartFiles()})
	refused := problemtest.Of(t, err)
	assert.Equal(t, problem.TooLarge, refused.Code)
	assert.Contains(t, refused.Detail, "no memory left")
	assert.Contains(t, refused.Fix, "resources.limits.memory")
}

func FuzzRender(f *testing.F) {
	f.Add("resources: [one.yaml]\n", configMap, "a: b")
	f.Add("bases: ['https://example.com']", bomb(), "{{ .Values.a }}")
	f.Fuzz(func(t *testing.T, kustomization, resource, values string) {
		if strings.Contains(values, "{{") {
			values = "" // templates are programs: their bound is the process
		}
		for _, j := range []render.Job{
			{Type: render.Kustomize, Files: files("kustomization.yaml", kustomization, "one.yaml", resource)},
			{Type: render.Chart, Path: "web", Values: values, Files: chartFiles("web/values.yaml", resource)},
		} {
			r := render.Do(j)
			if err := r.Err(); err != nil && len(r.Texts) > 0 {
				t.Fatal(errors.New("texts in spite of a problem"))
			}
		}
	})
}
