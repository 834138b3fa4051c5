package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// The limits of a release's chart. Kubernetes stores a release in 1 MiB, compressed, so every
// installable chart is far below these.
const (
	maxChart    = 8 << 20   // bytes, as Helm keeps it, and of all definitions
	maxMetadata = 256 << 10 // bytes of Chart.yaml, in JSON
	// maxValues bounds the entries of all manifests, and of the chart's values, with aliases
	// expanded: each takes some hundred bytes while it is read.
	maxValues = 200_000
	// MaxObjects bounds the objects of a release. Objects in lists count, too: the code that splits
	// the documents checks that.
	MaxObjects = 2000
)

// release renders as `helm install` and `helm upgrade` do. What the agent and Helm read again later
// is read here first, where there is a limit.
func release(j Job, ask asker) Result {
	c, digest, failed := unpack(j.Archive)
	if failed != nil {
		return Result{Problem: failed}
	}
	if j.Defaults != "" {
		c.Values = nil
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(j.Defaults), &c.Values); err != nil {
			return wrong("report this", "the release's values cannot be read")
		}
	}
	whole, failed := kept(c) // rendering modifies a chart
	if failed != nil {
		return Result{Problem: failed}
	}
	if err := ask.read(Identity{c.Metadata.Name, c.Metadata.Version, digest}); err != nil {
		return wrong("report this", "%v", err)
	}
	values := map[string]any{}
	if j.Values != "" {
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(j.Values), &values); err != nil {
			return wrong("report this", "the values cannot be read")
		}
	}
	caps, err := capabilities(j)
	if err != nil {
		return wrong("report this", "%v", err)
	}
	if !j.Upgrade { // Helm creates a chart's definitions first
		defined(caps, c)
	}
	rendered, failed := templates(c, values, j, caps, bounds(ask, looking(ask)))
	if failed != nil {
		failed.Message = "the chart does not render: " + failed.Message
		return Result{Problem: failed}
	}
	r := Result{Chart: whole}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		r.Texts = append(r.Texts, Text{name, []byte(rendered[name])})
	}
	size := 0
	for _, crd := range c.CRDObjects() {
		r.CRDs = append(r.CRDs, Text{crd.Filename, crd.File.Data})
		size += len(crd.File.Data)
	}
	if size > maxChart {
		return tooLarge("install them by themselves", "the chart's definitions have more than %d MiB", maxChart>>20)
	}
	if failed := readable(r, ask); failed != nil {
		return Result{Problem: failed}
	}
	return r
}

// kept returns a chart as it is stored with its release.
func kept(c *chartv2.Chart) ([]byte, *Problem) {
	if n := 0; !counted(c.Values, &n) {
		return nil, tooLarge("use a smaller chart", "values.yaml has more than %d entries", maxValues).Problem
	}
	about, err := json.Marshal([]any{c.Metadata, c.Lock})
	if err == nil && len(about) > maxMetadata {
		return nil, tooLarge("use a smaller chart", "Chart.yaml has more than %d KiB", maxMetadata>>10).Problem
	}
	size := len(c.Schema)
	for _, f := range slices.Concat(c.Templates, c.Files) {
		size += len(f.Data)
	}
	if size > maxChart/4*3 { // in base64
		return nil, tooLarge("use a smaller chart: Kubernetes keeps a release in 1 MiB", "the chart has more than %d MiB without those that it depends on", maxChart/4*3>>20).Problem
	}
	whole, err := json.Marshal(c)
	if err != nil {
		return nil, wrong("report it, with the chart", "the chart cannot be kept: %v", err).Problem
	}
	return whole, nil
}

// defined adds the kinds of a chart's own definitions to those of the cluster.
func defined(caps *common.Capabilities, c *chartv2.Chart) {
	caps.APIVersions = slices.Clone(caps.APIVersions)
	for _, crd := range c.CRDObjects() {
		_ = documents(crd.File.Data, func(doc document) error {
			var d struct {
				Spec struct {
					Group    string
					Names    struct{ Kind string }
					Versions []struct{ Name string }
				}
			}
			if sigsyaml.Unmarshal(doc.text, &d) == nil {
				for _, v := range d.Spec.Versions {
					version := d.Spec.Group + "/" + v.Name
					caps.APIVersions = append(caps.APIVersions, version, version+"/"+d.Spec.Names.Kind)
				}
			}
			return nil
		})
	}
}

// readable reads all manifests as Kubernetes reads YAML, within limits. Its errors contain document
// and line.
func readable(r Result, ask asker) *Problem {
	read := reading{}
	for _, t := range slices.Concat(r.CRDs, r.Texts) {
		if strings.HasSuffix(t.Name, "NOTES.txt") {
			continue
		}
		if err := ask.at(t.Name); err != nil {
			return wrong("send it again", "%v", err).Problem
		}
		if err := documents(t.Body, func(d document) error { return read.document(t.Name, d) }); err != nil {
			return read.failed
		}
	}
	return nil
}

// reading counts what was read.
type reading struct {
	entries, objects int
	failed           *Problem
}

func (r *reading) document(name string, d document) error {
	var value any
	err := errors.New("a manifest has no zero bytes")
	if bytes.IndexByte(d.text, 0) < 0 {
		if err = plainAliases(d.text); err == nil {
			err = sigsyaml.Unmarshal(d.text, &value)
		}
	}
	switch {
	case err != nil:
		r.failed = wrong(fixChart, "the chart does not render: %s", d.located(name, err)).Problem
	case !counted(value, &r.entries):
		r.failed = tooLarge("split the chart", "%s: with this one the chart's manifests have more than %d entries", d.in(name), maxValues).Problem
	case value != nil:
		if r.objects++; r.objects > MaxObjects {
			r.failed = tooLarge("split the chart", "%s: with this one the chart has more than %d objects", d.in(name), MaxObjects).Problem
		}
	}
	if r.failed != nil {
		r.failed.Where = d.in(name)
		return errors.New(r.failed.Message)
	}
	return nil
}

// counted adds the number of values; it returns false if there are too many.
func counted(v any, n *int) bool {
	if *n++; *n > maxValues {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if !counted(e, n) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !counted(e, n) {
				return false
			}
		}
	}
	return true
}
