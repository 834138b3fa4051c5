package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// rendered is a chart that was rendered, once and for all, by a process with limits.
type rendered struct {
	chart *chart.Chart // as it came, without those that it depends on: as Helm keeps it
	// literal is a chart of what the templates became: what Helm renders of it is that.
	literal *chart.Chart
	objects []*object
	size    int64 // in memory, in bytes
}

// chartIntent identifies a chart for the policy.
func chartIntent(c render.Identity, from runnerapi.ChartSource) *runnerapi.ChartIntent {
	quote, source := shellescape.Quote, "--chart FILE"
	switch {
	case from.OCI != "":
		source = "--chart " + quote(from.OCI) + " --version " + quote(c.Version)
	case from.Repository != "":
		source = "--chart " + quote(from.Name) + " --repo " + quote(from.Repository) + " --version " + quote(c.Version)
	}
	return &runnerapi.ChartIntent{Name: c.Name, Version: c.Version, Digest: c.Digest, Source: source}
}

// capabilities returns what charts ask about the cluster.
func capabilities(g *getter) (*common.Capabilities, error) {
	version, err := g.Discovery.ServerVersion()
	if err != nil {
		return nil, err
	}
	versions, err := action.GetVersionSet(g.Discovery)
	if err != nil {
		return nil, err
	}
	return &common.Capabilities{
		APIVersions: versions,
		KubeVersion: common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
		HelmVersion: common.DefaultCapabilities.HelmVersion,
	}, nil
}

// renderer has charts of one release be rendered.
type renderer struct {
	render.Process
	key      runnerapi.Key
	revision int
	upgrade  bool
	spec     runnerapi.ReleaseSpec
	caps     *common.Capabilities
}

// do renders a chart's archive. No file of it is read in this process.
func (r renderer) do(ctx context.Context, archive []byte, v values) (*rendered, error) {
	given, defaults, err := v.json()
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "correct the values", "the values cannot be written as JSON: %v", err).WithField("values")
	}
	var refused *problem.Error
	if look := r.Lookup; look != nil {
		r.Lookup = func(ctx context.Context, q render.Question) ([]byte, error) {
			object, err := look(ctx, q)
			errors.As(err, &refused)
			return object, err
		}
	}
	out, err := r.Run(ctx, render.Job{
		Type: render.Release, Archive: archive, Values: given, Defaults: defaults, Release: r.key.Name, Namespace: r.key.Namespace,
		Revision: r.revision, Upgrade: r.upgrade, SkipSchema: r.spec.SkipSchemaValidation, KubeVersion: r.caps.KubeVersion.Version, APIVersions: r.caps.APIVersions,
	})
	if err != nil {
		return nil, unrendered(err, refused)
	}
	if r.spec.SkipCRDs {
		out.CRDs = nil
	}
	return taken(out)
}

// unrendered returns why a chart was not rendered; refused is the refusal of a lookup, which is
// more specific.
func unrendered(err error, refused *problem.Error) error {
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	q := *p.WithField("chart")
	if refused != nil {
		q.Code, q.Fix = refused.Code, refused.Fix
		if !strings.Contains(q.Detail, refused.Detail) { // withheld
			q.Detail += ": " + refused.Detail
		}
	}
	return &q
}

// taken returns what the process made of a chart. What a chart that looked something up became is
// not quoted.
func taken(out render.Result) (*rendered, error) {
	r := &rendered{chart: &chart.Chart{}, size: sizeOf(out)}
	if err := json.Unmarshal(out.Chart, r.chart); err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	files := make(map[string]string, len(out.Texts))
	metadata := *r.chart.Metadata
	metadata.Dependencies = nil // they are rendered, too
	r.literal = &chart.Chart{Metadata: &metadata}
	for _, t := range out.Texts {
		// One action that is a text: nothing in it is evaluated again.
		r.literal.Templates = append(r.literal.Templates, &common.File{
			Name: strings.TrimPrefix(t.Name, r.chart.Name()+"/"), Data: []byte("{{" + strconv.Quote(string(t.Body)) + "}}"),
		})
		if path.Base(t.Name) != "NOTES.txt" {
			files[t.Name] = string(t.Body)
		}
	}
	for _, t := range out.CRDs {
		r.literal.Files = append(r.literal.Files, &common.File{Name: "crds/" + t.Name, Data: t.Body})
	}
	var err error
	r.objects, err = objectsOf(out.CRDs, files)
	if err != nil && out.Looked {
		err = problem.Errorf(problem.Invalid, "correct the chart; helm template shows more", "what the chart renders to cannot be read: %s",
			render.Withheld).WithField("chart")
	}
	return r, err
}

// objectsOf returns what the rendered files hold, in the order in which Helm makes them.
func objectsOf(crds []render.Text, files map[string]string) ([]*object, error) {
	var all []*object
	for _, crd := range crds {
		found, err := parseObjects(crd.Name, string(crd.Body), definition)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for name, text := range files { // Helm's own reading of them has no limits
		if err := ofObjects.PlainAliases([]byte(text)); err != nil {
			return nil, unreadable(fmt.Errorf("%s: %w", name, err))
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, unreadable(err)
	}
	for _, m := range manifests {
		found, err := parseIn(files, m.Name, m.Content, "")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for _, h := range hooks {
		events := make([]string, len(h.Events))
		for i, e := range h.Events {
			events[i] = e.String()
		}
		slices.Sort(events)
		found, err := parseIn(files, h.Path, h.Manifest, strings.Join(events, ","))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) > render.MaxObjects { // some in lists: documents were counted before
		return nil, problem.Errorf(problem.TooLarge, "split the chart", "the chart has %d objects, more than %d; %s has the most", len(all), render.MaxObjects, mostOf(all)).WithField("chart")
	}
	unduplicated(all)
	return all, nil
}

// parseIn is like parseObjects for a part of a file, and adds the line to errors.
func parseIn(files map[string]string, name, part, hook string) ([]*object, error) {
	found, err := parseObjects(name, part, hook)
	if err != nil {
		_, err = parseObjects(render.Locate(name, files[name], part), part, hook)
	}
	for _, o := range found {
		o.at = func() string { return render.Locate(name, files[name], part) }
	}
	return found, err
}

// mostOf names the template that brings most of the objects.
func mostOf(all []*object) string {
	count, most := map[string]int{}, ""
	for _, o := range all {
		if count[o.source]++; count[o.source] > count[most] {
			most = o.source
		}
	}
	return fmt.Sprintf("%s with %d", most, count[most])
}

// unreadable returns why what a chart renders to are not manifests.
func unreadable(err error) error {
	detail := "the chart does not render: " + clip(strings.Join(strings.Fields(err.Error()), " "))
	return problem.Errorf(problem.Invalid, "correct the values or the chart; helm template shows the same", "%s", detail).WithField("chart")
}

// maxMessage bounds Helm's own text, in bytes.
const maxMessage = 2000

func clip(text string) string { return printable.Shorten(text, maxMessage) }
