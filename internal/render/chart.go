package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // templates format times of zones, and cannot open files

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	dependencies "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/ignore"
)

// chart renders as `helm template --include-crds` does, without hooks. Templates look up
// nothing in the cluster and in no DNS; schemas of values are loaded from nowhere.
func chart(j Job, ask asker) Result {
	c, err := loadChart(j)
	if err != nil {
		return wrongFile(err, fixChart)
	}
	values, err := valuesOf(j)
	if err != nil {
		return wrongFile(err, "correct the values")
	}
	caps, err := capabilities(j)
	if err != nil {
		return wrong("report this", "%v", err)
	}
	j.Revision = 1
	rendered, failed := templates(c, values, j, caps, bounds(ask, nil))
	if failed != nil {
		return Result{Problem: failed}
	}
	r := sorted(rendered)
	for _, crd := range c.CRDObjects() {
		r.Texts = append([]Text{{crd.Filename, crd.File.Data}}, r.Texts...)
	}
	if len(r.Texts) == 0 {
		return wrong("add templates, or switch on by its values what it is to bring", "the chart brings nothing")
	}
	return r
}

const fixChart = "correct the chart; `helm template` says the same"

func capabilities(j Job) (*common.Capabilities, error) {
	caps := common.DefaultCapabilities.Copy()
	if j.KubeVersion != "" {
		version, err := common.ParseKubeVersion(j.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("the cluster's version %q cannot be read", j.KubeVersion)
		}
		caps.KubeVersion = *version
	}
	if j.APIVersions != nil {
		caps.APIVersions = j.APIVersions
	}
	return caps, nil
}

// templates executes a chart's templates, which modifies the chart. It returns the results by their
// full names.
func templates(c *chartv2.Chart, values map[string]any, j Job, caps *common.Capabilities, functions map[string]any) (map[string]string, *Problem) {
	if want := c.Metadata.KubeVersion; want != "" && !dependencies.IsCompatibleRange(want, caps.KubeVersion.String()) {
		return nil, wrong("use a version of the chart for this one", "it wants Kubernetes %s, and this is %s", want, caps.KubeVersion.Version).Problem
	}
	if err := dependencies.ProcessDependencies(c, values); err != nil {
		return nil, wrong(fixChart, "its dependencies: %v", err).Problem
	}
	KeepNulls(c, values)
	top, err := chartutil.ToRenderValuesWithSchemaValidation(c, values, common.ReleaseOptions{
		Name: j.Release, Namespace: j.Namespace, Revision: j.Revision, IsInstall: !j.Upgrade, IsUpgrade: j.Upgrade,
	}, caps, true)
	if err != nil {
		return nil, wrong("correct the values", "%v", err).Problem
	}
	if all, ok := top["Values"].(common.Values); ok && !j.SkipSchema {
		if err := validate(c, all, ""); err != nil {
			fix := "correct the values, as values.schema.json of the chart says"
			if strings.Contains(err.Error(), errElsewhere.Error()) { // the library does not wrap it
				fix = "deploy it without: helm deploy --skip-schema-validation (skipSchemaValidation in the API), or put that schema into values.schema.json"
			}
			return nil, wrong(fix, "%v", err).Problem
		}
	}
	announce(c)
	names := namesOf(c)
	known(functions, names)
	rendered, err := (engine.Engine{CustomTemplateFuncs: functions}).RenderWithContext(context.Background(), c, top) // the process is its bound
	if err != nil {
		text := unannounced(strings.Join(strings.Fields(err.Error()), " "))
		failed := wrong(fixChart, "%s", text).Problem
		failed.Where = placeIn(text, names)
		return nil, failed
	}
	return rendered, nil
}

// KeepNulls makes Helm heed a null that a chart's values.yaml has for a default of a sub-chart.
// Helm from 4.2 on drops it, unless the given values have the sub-chart's name:
// https://github.com/helm/helm/issues/32132. It is for a chart whose dependencies were processed.
func KeepNulls(c *chartv2.Chart, values map[string]any) {
	for _, d := range c.Dependencies() {
		if values[d.Name()] == nil {
			values[d.Name()] = map[string]any{}
		}
		if below, ok := values[d.Name()].(map[string]any); ok {
			KeepNulls(d, below)
		}
	}
}

// loadChart takes the chart's files as Helm would from a folder.
func loadChart(j Job) (*chartv2.Chart, error) {
	root := clean(j.Path)
	rules := ignore.Empty()
	if text, ok := j.Files[path.Join(root, ignore.HelmIgnore)]; ok {
		var err error
		if rules, err = ignore.Parse(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", ignore.HelmIgnore, err)
		}
	}
	rules.AddDefaults()
	var files []*archive.BufferedFile
	for _, name := range slices.Sorted(maps.Keys(j.Files)) {
		if !within(name, root) || name == root {
			continue
		}
		in := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		if !ignored(rules, in) {
			if err := j.usable(name); err != nil {
				return nil, err
			}
			files = append(files, &archive.BufferedFile{Name: in, Data: bytes.TrimPrefix(j.Files[name], []byte("\ufeff"))})
		}
	}
	if !slices.ContainsFunc(files, func(f *archive.BufferedFile) bool { return f.Name == "Chart.yaml" }) {
		return nil, fmt.Errorf("there is no Chart.yaml in %s", where(root))
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	return c, installable(c)
}

// ignored reports whether .helmignore is about a file or a folder that it is in.
func ignored(rules *ignore.Rules, name string) bool {
	for i, r := range name {
		if r == '/' && rules.Ignore(name[:i], info{name[:i], true}) {
			return true
		}
	}
	return rules.Ignore(name, info{name, false})
}

// info is what ignore.Rules asks of a file.
type info struct {
	name string
	dir  bool
}

func (i info) Name() string     { return path.Base(i.name) }
func (info) Size() int64        { return 0 }
func (info) Mode() os.FileMode  { return 0 }
func (info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool      { return i.dir }
func (info) Sys() any           { return nil }

func valuesOf(j Job) (map[string]any, error) {
	all := map[string]any{}
	add := func(name string, text []byte) error {
		values := map[string]any{}
		if err := aliased.YAML(text, &values); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = loader.MergeMaps(all, values)
		return nil
	}
	for _, name := range j.ValuesFiles {
		text, ok := j.Files[clean(name)]
		if !ok {
			return nil, fmt.Errorf("%s is not in the repository", clean(name))
		}
		if err := j.usable(clean(name)); err != nil {
			return nil, err
		}
		if err := add(name, text); err != nil {
			return nil, err
		}
	}
	return all, add("values", []byte(j.Values))
}

// validate holds values against the schemas of a chart and what it depends on. Helm's own
// would fetch a schema that another one names.
func validate(c *chartv2.Chart, values map[string]any, at string) error {
	if c.Schema != nil {
		if err := matches(c.Schema, values); err != nil {
			return fmt.Errorf("values%s of chart %s: %w", at, c.Metadata.Name, err)
		}
	}
	for _, d := range c.Dependencies() {
		var below map[string]any
		switch v := values[d.Name()].(type) {
		case map[string]any:
			below = v
		case common.Values:
			below = v
		}
		if below != nil {
			if err := validate(d, below, at+"."+d.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

var errElsewhere = errors.New("schemas are not loaded from elsewhere")

type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errElsewhere
}

func matches(schema []byte, values map[string]any) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("values.schema.json is not JSON: %w", err)
	}
	const name = "pipeops:values.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(name, doc); err != nil {
		return err
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	return compiled.Validate(values)
}

// hook is the annotation of a manifest that Helm runs, rather than installs. Without an
// upgrade that it would belong to it cannot be run, so such manifests are left out.
var hook = regexp.MustCompile(`(?m)^\s+["']?helm\.sh/hook["']?\s*:`)

var separator = regexp.MustCompile(`(?m)^---\s*$`)

func sorted(rendered map[string]string) Result {
	var r Result
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Base(name) == "NOTES.txt" {
			continue
		}
		var keep []string
		for _, doc := range separator.Split(rendered[name], -1) {
			switch {
			case strings.TrimSpace(doc) == "":
			case hook.MatchString(doc):
				r.Skipped = append(r.Skipped, name)
			default:
				keep = append(keep, doc)
			}
		}
		if len(keep) > 0 {
			r.Texts = append(r.Texts, Text{name, []byte(strings.Join(keep, "\n---\n"))})
		}
	}
	return r
}
