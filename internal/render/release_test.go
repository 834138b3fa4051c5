package render_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

const chartYAML = "apiVersion: v2\nname: web\nversion: 1.2.3\n"

func packed(t testing.TB, fill func(*tar.Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(zipped)
	fill(w)
	require.NoError(t, w.Close())
	require.NoError(t, zipped.Close())
	return out.Bytes()
}

func add(t testing.TB, w *tar.Writer, h tar.Header, text string) {
	t.Helper()
	h.Mode, h.Size = 0o644, int64(len(text))
	require.NoError(t, w.WriteHeader(&h))
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
}

func release(archive []byte) render.Job {
	return render.Job{Type: render.Release, Archive: archive, Release: "shop", Namespace: "production", Revision: 3, Upgrade: true}
}

// template is a chart of one template.
func template(t testing.TB, text string) []byte {
	return rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/templates/x.yaml", text)
}

// TestRelease_WithholdsLookups expects errors that name only the template and the line.
func TestRelease_WithholdsLookups(t *testing.T) {
	const secret = `(lookup "v1" "Secret" "production" "mine").data.key`
	p := rendertest.Process(t)
	p.Lookup = func(context.Context, render.Question) ([]byte, error) {
		return []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"mine"},"data":{"key":"hunter2"}}`), nil
	}
	for text, where := range map[string]string{
		"a: b\n\nb: {{ fail " + secret + " }}\n":                                                                         "web/templates/x.yaml:3: ",
		"a: b\nb: {{ required " + secret + " .Values.none }}\n":                                                          "web/templates/x.yaml:2: ",
		"a: {{ index (list 1) " + secret + " }}\n":                                                                       "web/templates/x.yaml:1: ",
		"a: b\nb: {{ tpl (printf \"{{ %s }}\" " + secret + ") . }}\n":                                                    "web/templates/x.yaml:2: ",
		"a: *{{ " + secret + " }}\n":                                                                                     "web/templates/x.yaml, document 1, from line 1",
		"a: {{ pipeopsReached " + secret + " }}{{ fail \"now\" }}\n":                                                     "web/templates/x.yaml:1: ",
		"{{ define " + `"hunter2:7"` + " }}{{ fail " + secret + " }}{{ end }}a: {{ include " + `"hunter2:7"` + " . }}\n": "web/templates/x.yaml:1: ",
	} {
		_, err := p.Run(t.Context(), release(template(t, text)))
		require.ErrorContains(t, err, where, text)
		assert.Contains(t, err.Error(), render.Withheld, text)
		assert.NotContains(t, err.Error(), "hunter2", text)
	}
	_, err := p.Run(t.Context(), release(template(t, "a: {{ fail \"set it\" }}\n")))
	assert.ErrorContains(t, err, "set it", "nothing was looked up")
	r, err := p.Run(t.Context(), release(template(t, "a: {{ "+secret+" }}\n")))
	require.NoError(t, err)
	assert.True(t, r.Looked)
}

// TestRelease_Rendered expects notes, hooks, dependencies, CRDs, and the original chart.
func TestRelease_Rendered(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n" +
		"spec: {group: example.com, names: {kind: Thing}, versions: [{name: v1}]}\n"
	const source = "a: {{ .Values.size }}\nb: {{ .Release.Revision }} {{ .Release.IsUpgrade }} {{ .Release.Namespace }}\nc: {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" }}\n" +
		"d: {{ .Capabilities.APIVersions.Has \"example.com/v1/Thing\" }}\ne: {{ .Files.Get \"greeting.txt\" }}\nf: {{ (lookup \"v1\" \"ConfigMap\" \"production\" \"mine\").data.key }}\n" +
		"g: {{ len (lookup \"v1\" \"ConfigMap\" \"production\" \"\").items }}\nh: {{ len (lookup \"v1\" \"Secret\" \"production\" \"gone\") }}\n"
	archive := rendertest.Archive(t, "web/Chart.yaml", chartYAML+"dependencies: [{name: db, version: 1.x, condition: db.enabled}, {name: extra, version: 1.x, condition: extra.enabled}]\n",
		"web/values.yaml", "size: 1\nextra: {enabled: false}\n", "web/greeting.txt", "hello", "web/crds/thing.yaml", crd,
		"web/templates/_helpers.tpl", `{{ define "x" }}{{ end }}`, "web/templates/a.yaml", source, "web/templates/NOTES.txt", "thanks, {{ .Release.Name }}",
		"web/templates/hook.yaml", "kind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-install}\n",
		"web/charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n", "web/charts/db/templates/db.yaml", "db: {{ .Values.size }}\n",
		"web/charts/extra/Chart.yaml", "apiVersion: v2\nname: extra\nversion: 1.0.0\n", "web/charts/extra/templates/extra.yaml", "extra: 1\n")
	p := rendertest.Process(t)
	var asked []render.Question
	p.Lookup = func(_ context.Context, q render.Question) ([]byte, error) {
		asked = append(asked, q)
		switch q.Name {
		case "mine":
			return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"data":{"key":"found"}}`), nil
		case "":
			return []byte(`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},"items":[{"metadata":{"name":"mine"}}]}`), nil
		}
		return nil, nil
	}
	j := release(archive)
	j.Upgrade, j.APIVersions, j.Values = false, []string{"apps/v1", "apps/v1/Deployment"}, `{"size":12345678,"db":{"size":"large"}}`
	r, err := p.Run(t.Context(), j)
	require.NoError(t, err)
	texts := map[string]string{}
	for _, text := range r.Texts {
		texts[text.Name] = string(text.Body)
	}
	assert.Equal(t, map[string]string{
		"web/templates/a.yaml": "a: 12345678\nb: 3 false production\nc: true\nd: true\ne: hello\nf: found\ng: 1\nh: 0\n", "web/templates/NOTES.txt": "thanks, shop",
		"web/templates/hook.yaml": "kind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-install}\n", "web/charts/db/templates/db.yaml": "db: large\n",
	}, texts)
	assert.Equal(t, []render.Text{{Name: "web/crds/thing.yaml", Body: []byte(crd)}}, r.CRDs)
	assert.Equal(t, render.Question{APIVersion: "v1", Kind: "ConfigMap", Namespace: "production", Name: "mine"}, asked[0])
	kept := chartv2.Chart{}
	require.NoError(t, json.Unmarshal(r.Chart, &kept))
	assert.Equal(t, "1.2.3", kept.Metadata.Version)
	assert.EqualValues(t, 1, kept.Values["size"])
	var sources []string
	for _, f := range kept.Templates {
		sources = append(sources, f.Name+string(f.Data))
	}
	assert.Contains(t, sources, "templates/a.yaml"+source)
}

// TestRelease_RefusesBombs expects the name of the template, and that the agent's memory stays
// small.
func TestRelease_RefusesBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("renders as much as a child process may")
	}
	inner := rendertest.Archive(t, "c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/zeros", strings.Repeat("\x00", 15<<20))
	inners := []string{"web/Chart.yaml", chartYAML}
	for i := range 100 {
		inners = append(inners, fmt.Sprintf("web/charts/c%d.tgz", i), string(inner))
	}
	const endless = "includes that fork"
	const memory = "takes more than 64 MiB of memory"
	for name, c := range map[string]struct {
		archive []byte
		says    []string
	}{
		"a text":              {template(t, "a: b\n{{ repeat 1000000000 `x` }}"), []string{"web/templates/x.yaml:2:3", "repeat makes at most 1048576 bytes"}},
		"a list":              {template(t, "a: b\n\n{{ range until 1000000000 }}{{ end }}"), []string{"web/templates/x.yaml:3:9", "at most 65536 numbers"}},
		"a first line":        {template(t, "{{ range untilStep 0 1000000000 1 }}{{ end }}"), []string{"web/templates/x.yaml:1:9"}},
		"a sequence":          {template(t, "{{ seq 1 1000000000 }}"), []string{"web/templates/x.yaml " + memory}},
		"an indentation":      {template(t, "{{ indent 2000000000 `x` }}"), []string{"web/templates/x.yaml " + memory}},
		"a text that doubles": {template(t, "{{ $x := `x` }}{{ range 1000 }}{{ $x = print $x $x }}{{ end }}"), []string{"web/templates/x.yaml " + memory}},
		"an output":           {template(t, "{{ range 1000000000 }}aaaaaaaaaaaaaaaa{{ end }}"), []string{"web/templates/x.yaml " + memory}},
		"more than it may be": {template(t, "{{ range 70 }}# {{ repeat 65536 `x` }}\n{{ end }}"), []string{"4194304 are the most"}},
		"entries":             {template(t, "a: [{{ range 200001 }}1,{{ end }}]"), []string{"web/templates/x.yaml", "more than 200000 entries"}},
		"aliases":             {template(t, bomb()), []string{"web/templates/x.yaml", "alias"}},
		"includes":            {template(t, `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`), []string{"web/templates/x.yaml"}}, // its memory or its depth, whichever is reached first
		endless:               {template(t, `{{ define "a" }}{{ if . }}{{ include "a" (rest .) }}{{ include "a" (rest .) }}{{ end }}x{{ end }}{{ include "a" (until 60) }}`), []string{"web/templates/x.yaml takes more than "}},
		"templates":           {template(t, `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`), []string{"web/templates/x.yaml"}},
		"tpl":                 {template(t, `{{ define "a" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ include "a" . }}`), []string{"web/templates/x.yaml"}},
		"charts in it":        {rendertest.Archive(t, inners...), []string{memory}},
	} {
		t.Run(name, func(t *testing.T) {
			p := rendertest.Process(t)
			before := resident(t)
			began := time.Now()
			var refused *problem.Error
			if name == endless {
				refused = outOfTime(t, p, release(c.archive))
			} else {
				p.Patience = 5 * time.Minute // the memory has to run out before, however busy the machine is
				_, err := p.Run(t.Context(), release(c.archive))
				refused = problemtest.Of(t, err)
			}
			t.Logf("%s: %s", time.Since(began).Round(time.Millisecond), refused.Detail)
			for _, says := range c.says {
				assert.Contains(t, refused.Detail, says)
			}
			assert.Less(t, resident(t)-before, 16<<20)
		})
	}
}

// resident is how much memory this process uses, in bytes, without what it no longer needs.
func resident(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, pages int
	_, err = fmt.Sscan(string(text), &size, &pages)
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

func TestRelease_RefusesOtherArchives(t *testing.T) {
	if testing.Short() {
		t.Skip("renders as much as a child process may")
	}
	with := func(h tar.Header, text string) []byte {
		return packed(t, func(w *tar.Writer) {
			add(t, w, tar.Header{Name: "web/Chart.yaml"}, chartYAML)
			add(t, w, h, text)
		})
	}
	many := func(n int) []byte {
		return packed(t, func(w *tar.Writer) {
			for i := range n {
				add(t, w, tar.Header{Name: fmt.Sprintf("web/%d", i)}, "")
			}
		})
	}
	var aMiB bytes.Buffer
	zipped := gzip.NewWriter(&aMiB)
	_, err := zipped.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, zipped.Close())
	zeros := bytes.Repeat(aMiB.Bytes(), 1<<10) // a file may have many members (RFC 1952, section 2.2)
	for name, c := range map[string]struct {
		archive []byte
		code    problem.Code
		says    string
	}{
		"nothing":              {nil, problem.Invalid, "this is not a chart: EOF"},
		"no gzip":              {[]byte("hello, this is not an archive"), problem.Invalid, "gzip: invalid header"},
		"cut off":              {template(t, "a: b")[:100], problem.Invalid, "unexpected EOF"},
		"no chart":             {rendertest.Archive(t, "web/readme", "x"), problem.Invalid, "Chart.yaml file is missing"},
		"a GiB of zeros":       {zeros, problem.TooLarge, "unpacked, has more than 16 MiB"},
		"a large file":         {with(tar.Header{Name: "web/zeros"}, strings.Repeat("\x00", 17<<20)), problem.TooLarge, "unpacked, has more than 16 MiB"},
		"5001 files":           {many(5001), problem.TooLarge, "more than 5000 files"},
		"many files":           {many(40_000), problem.TooLarge, "more than 5000 files"},
		"a way out":            {with(tar.Header{Name: "web/../../etc/passwd"}, "x"), problem.Invalid, `"web/../../etc/passwd" is outside of the chart's folder`},
		"another's way out":    {with(tar.Header{Name: `web\..\..\etc\passwd`}, "x"), problem.Invalid, "is outside of the chart's folder"},
		"an absolute path":     {with(tar.Header{Name: "/etc/passwd"}, "x"), problem.Invalid, `"/etc/passwd" is outside`},
		"a symbolic link":      {with(tar.Header{Name: "web/values.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""), problem.Invalid, `"web/values.yaml" is a link`},
		"a hard link":          {with(tar.Header{Name: "web/values.yaml", Typeflag: tar.TypeLink, Linkname: "web/Chart.yaml"}, ""), problem.Invalid, "is a link"},
		"a device":             {with(tar.Header{Name: "web/zero", Typeflag: tar.TypeChar}, ""), problem.Invalid, "is not a file"},
		"a library":            {rendertest.Archive(t, "web/Chart.yaml", chartYAML+"type: library\n"), problem.Invalid, "of type library"},
		"no dependencies":      {rendertest.Archive(t, "web/Chart.yaml", chartYAML+"dependencies: [{name: db, version: 1, repository: https://example.com}]\n"), problem.Invalid, "lacks its dependencies db"},
		"a schema over https":  {rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/values.schema.json", `{"$ref":"https://example.com/s.json"}`), problem.Invalid, "not loaded from elsewhere"},
		"too many values":      {rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/values.yaml", "a: ["+strings.Repeat("1,", 200_000)+"1]"), problem.TooLarge, "values.yaml has more than 200000 entries"},
		"a Chart.yaml of MiBs": {rendertest.Archive(t, "web/Chart.yaml", chartYAML+"description: "+strings.Repeat("x", 1<<20)), problem.TooLarge, "Chart.yaml has more than 256 KiB"},
		"more than is kept":    {rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/readme", strings.Repeat("x", 7<<20)), problem.TooLarge, "more than 6 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			before := resident(t)
			_, err := run(t, release(c.archive))
			refused := problemtest.Of(t, err)
			assert.Equal(t, c.code, refused.Code)
			assert.Contains(t, refused.Detail, c.says)
			assert.NotEmpty(t, refused.Fix)
			assert.Less(t, resident(t)-before, 16<<20)
		})
	}
}

// TestCharts_NullInSubchart removes a default of a sub-chart by the parent's values.yaml, as Helm 3
// does (https://github.com/helm/helm/issues/32132), with and without an entry in Chart.yaml.
func TestCharts_NullInSubchart(t *testing.T) {
	for _, dependencies := range []string{"", "dependencies: [{name: sub, version: 0.1.0}]\n", "dependencies: [{name: sub, version: 0.1.0, alias: other}]\n"} {
		name := "sub"
		if strings.Contains(dependencies, "alias") {
			name = "other"
		}
		chart := []string{
			"web/Chart.yaml", chartYAML + dependencies, "web/values.yaml", name + ": {resources: {limits: {cpu: null}}, below: {a: null}}\n",
			"web/charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
			"web/charts/sub/values.yaml", "resources: {limits: {cpu: 200m, memory: 200Mi}}\n",
			"web/charts/sub/templates/x.yaml", "kind: A\nresources: {{ .Values.resources | toJson | quote }}\n",
			"web/charts/sub/charts/below/Chart.yaml", "apiVersion: v2\nname: below\nversion: 0.1.0\n",
			"web/charts/sub/charts/below/values.yaml", "a: 1\nb: 2\n",
			"web/charts/sub/charts/below/templates/x.yaml", "kind: B\nall: {{ omit .Values \"global\" | toJson | quote }}\n",
		}
		for _, j := range []render.Job{release(rendertest.Archive(t, chart...)), {Type: render.Chart, Path: "web", Release: "x", Namespace: "y", Files: files(chart...)}} {
			r, err := run(t, j)
			require.NoError(t, err)
			assert.Contains(t, all(r), `resources: "{\"limits\":{\"memory\":\"200Mi\"}}"`, dependencies)
			assert.Contains(t, all(r), `all: "{\"b\":2}"`, dependencies)
		}
	}
}

// TestRelease_LargeChart has 4 MiB of CRDs and 2 MiB of manifests.
func TestRelease_LargeChart(t *testing.T) {
	if testing.Short() {
		t.Skip("renders as much as a child process may")
	}
	files := []string{"web/Chart.yaml", chartYAML}
	for i := range 10 {
		text := fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: c%d.example.com}\nspec:\n", i)
		for n := range 5000 {
			text += fmt.Sprintf("  property%d: {description: a property of it that is described in some words, type: string}\n", n)
		}
		files = append(files, fmt.Sprintf("web/charts/crds/crds/%d.yaml", i), text)
	}
	files = append(files, "web/charts/crds/Chart.yaml", "apiVersion: v2\nname: crds\nversion: 1.0.0\n")
	for i := range 20 {
		files = append(files, fmt.Sprintf("web/templates/%d.yaml", i), fmt.Sprintf("kind: ConfigMap\nmetadata: {name: d%d}\ndata:\n  dashboard: |\n{{ range 2000 }}%s\n{{ end }}", i, "    "+strings.Repeat("x", 50)))
	}
	r, err := run(t, release(rendertest.Archive(t, files...)))
	require.NoError(t, err)
	assert.Len(t, r.CRDs, 10)
	assert.Len(t, r.Texts, 20)
}

// TestRelease_SchemaElsewhere is never fetched, and can be left out.
func TestRelease_SchemaElsewhere(t *testing.T) {
	j := release(rendertest.Archive(t, "web/Chart.yaml", chartYAML, "web/values.schema.json", `{"$ref":"https://example.com/s.json"}`, "web/templates/a.yaml", "a: b"))
	_, err := run(t, j)
	assert.Contains(t, problemtest.Of(t, err).Fix, "--skip-schema-validation")
	j.SkipSchema = true
	r, err := run(t, j)
	require.NoError(t, err)
	assert.Len(t, r.Texts, 1)
}

func FuzzRelease(f *testing.F) {
	f.Add(rendertest.Archive(f, "web/Chart.yaml", chartYAML, "web/templates/a.yaml", "a: b", "web/values.yaml", "a: b"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if bytes.Contains(archive, []byte("{{")) {
			return // templates are programs: their bound is the process
		}
		_ = render.Do(release(archive))
	})
}
