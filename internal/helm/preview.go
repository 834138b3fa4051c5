package helm

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Preview is what an installation of a chart would bring.
type Preview struct {
	Chart   runnerapi.ChartIntent
	Objects []PreviewObject
	// Lookups are the kinds that its templates look up, as a policy names them.
	Lookups []string
}

// PreviewObject is an object of a chart.
type PreviewObject struct {
	*unstructured.Unstructured
	Brings     runnerapi.ObjectIntent
	Resource   schema.GroupResource
	Namespaced bool
}

// Preview renders a chart as an installation does, and changes nothing. It is for the cluster's
// owner, with the owner's rights: templates look up nothing. The error lists all objects that no
// policy allows.
func (r *Releases) Preview(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec) (Preview, error) {
	c, err := r.clients()
	if err != nil {
		return Preview{}, err
	}
	login, err := c.login(ctx, key.Namespace, spec.Chart)
	if err != nil {
		return Preview{}, err
	}
	archive, err := r.fetch.Chart(ctx, spec.Chart, login)
	if err != nil {
		return Preview{}, err
	}
	g, err := newGetter(ctx, r.config, key.Namespace)
	if err != nil {
		return Preview{}, err
	}
	caps, err := capabilities(g)
	if err != nil {
		return Preview{}, kubeproblem.From(err, "reading what the cluster serves")
	}
	p := Preview{}
	do := renderer{Process: r.opts.Render, key: key, revision: 1, spec: spec, caps: caps}
	do.Read = func(c render.Identity) { p.Chart = *chartIntent(c, spec.Chart) }
	do.Lookup = func(_ context.Context, q render.Question) ([]byte, error) {
		p.looksUp(denylist.Kind(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)))
		return nil, nil
	}
	out, err := do.do(ctx, archive, values{given: copied(spec.Values)})
	if err != nil {
		return Preview{}, err
	}
	err = p.add(out.objects, r.limits(key.Namespace), g.Mapper)
	return p, err
}

func (p *Preview) looksUp(kind string) {
	if !slices.Contains(p.Lookups, kind) {
		p.Lookups = append(p.Lookups, kind)
	}
}

func (p *Preview) add(objects []*object, allowed limits, mapper meta.RESTMapper) error {
	var refused []error
	for _, o := range objects {
		in, err := objectIntent(o)
		if err == nil {
			err = allowed.check(o)
		}
		if err != nil {
			refused = append(refused, err)
			continue
		}
		resource, namespaced, err := scopeOf(o, objects, mapper)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		in.ClusterScoped = !namespaced
		p.Objects = append(p.Objects, PreviewObject{o.Unstructured, in, resource, namespaced})
	}
	return problem.Together(refused)
}

// scopeOf returns an object's resource, of the cluster or of a definition that the chart brings.
func scopeOf(o *object, all []*object, mapper meta.RESTMapper) (resource schema.GroupResource, namespaced bool, err error) {
	gvk := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil {
		return mapping.Resource.GroupResource(), mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
	}
	if !meta.IsNoMatchError(err) {
		return resource, false, kubeproblem.From(err, "finding kind "+gvk.Kind)
	}
	d := definitionOf(o, all)
	if d == nil {
		return resource, false, unknownKind(o)
	}
	plural, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(d.Object, "spec", "scope")
	if plural == "" {
		return resource, false, inTemplate(d, errors.New("the definition names no plural"))
	}
	return schema.GroupResource{Group: gvk.Group, Resource: plural}, scope != "Cluster", nil
}
