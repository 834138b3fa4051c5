package helm

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxRendered bounds what a chart becomes: more fits in no release.
const maxRendered = 8 << 20

// capabilities are what charts ask about the cluster.
func capabilities(g *getter) (*common.Capabilities, error) {
	version, err := g.discovery.ServerVersion()
	if err != nil {
		return nil, err
	}
	versions, err := action.GetVersionSet(g.discovery)
	if err != nil {
		return nil, err
	}
	return &common.Capabilities{
		APIVersions: versions,
		KubeVersion: common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
		HelmVersion: common.DefaultCapabilities.HelmVersion,
	}, nil
}

// render renders a chart before Helm does, so that all its objects, hooks too, can be
// looked at before the first is made. What Helm renders then is looked at again.
func render(ctx context.Context, g *getter, c *chart.Chart, values map[string]any, key runnerapi.Key, revision int, caps *common.Capabilities) ([]*object, error) {
	if v := c.Metadata.KubeVersion; v != "" && !chartutil.IsCompatibleRange(v, caps.KubeVersion.String()) {
		return nil, unrendered(fmt.Errorf("it wants Kubernetes %s, and this is %s", v, caps.KubeVersion.Version))
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, unrendered(err)
	}
	top, err := util.ToRenderValues(c, values, common.ReleaseOptions{
		Name: key.Name, Namespace: key.Namespace, Revision: revision, IsInstall: revision == 1, IsUpgrade: revision > 1,
	}, caps)
	if err != nil {
		return nil, unrendered(err)
	}
	e := engine.New(g.config)
	e.CustomTemplateFuncs = boundedFuncs()
	files, err := e.RenderWithContext(ctx, c, top)
	if err != nil {
		return nil, unrendered(err)
	}
	size := 0
	for name, text := range files {
		if size += len(text); strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	if size > maxRendered {
		return nil, tooLarge("what the chart renders to", maxRendered)
	}
	return objectsOf(c, files)
}

// objectsOf are what the rendered files hold, in the order in which Helm makes them.
func objectsOf(c *chart.Chart, files map[string]string) ([]*object, error) {
	var all []*object
	for _, crd := range c.CRDObjects() {
		found, err := parseObjects(crd.Filename, string(crd.File.Data), "crd")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, unrendered(err)
	}
	for _, m := range manifests {
		found, err := parseObjects(m.Name, m.Content, "")
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
		sort.Strings(events)
		found, err := parseObjects(h.Path, h.Manifest, strings.Join(events, ","))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) > maxObjects {
		return nil, problem.Errorf(problem.TooLarge, "split the chart", "the chart has %d objects, more than %d", len(all), maxObjects).WithField("chart")
	}
	return all, nil
}

// unrendered says why a chart does not render. The engine's errors name template and
// line, over several lines of text.
func unrendered(err error) error {
	detail := "the chart does not render: " + clip(strings.Join(strings.Fields(err.Error()), " "))
	p := &problem.Error{}
	switch {
	case !errors.As(err, &p):
		return problem.Errorf(problem.Invalid, "correct the values or the chart; helm template shows the same", "%s", detail).WithField("chart")
	case error(p) == err: //nolint:errorlint // nothing is around it
		return p
	}
	located := *p // with the template's line
	located.Detail = detail
	return &located
}

func clip(text string) string {
	const most = 2000
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// maxRepeat bounds what one call of a template function makes.
const maxRepeat = 1 << 20

// boundedFuncs replace those of sprig that make as much as they are told to.
func boundedFuncs() map[string]any {
	return map[string]any{
		"repeat": func(n int, text string) (string, error) {
			if n < 0 || n*max(len(text), 1) > maxRepeat || n > maxRepeat {
				return "", fmt.Errorf("repeat makes at most %d bytes", maxRepeat)
			}
			return strings.Repeat(text, n), nil
		},
		"until":     func(n int) ([]int, error) { return steps(0, n, 1) },
		"untilStep": steps,
	}
}

func steps(start, stop, step int) ([]int, error) {
	if step == 0 || start < stop != (step > 0) {
		return []int{}, nil
	}
	n := (stop - start) / step
	if n > maxRepeat>>4 {
		return nil, fmt.Errorf("a list has at most %d numbers", maxRepeat>>4)
	}
	var list []int
	for i := start; i < stop == (step > 0) && i != stop; i += step {
		list = append(list, i)
	}
	return list, nil
}
