package helm

import (
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Helm does not mark hooks as objects of their release, and replaces what has a hook's name. The
// agent marks them, and leaves alone what has no such mark, except hooks of a release of helm's own
// that a command takes over.

const (
	isForeign  = "it is there already, and not this release's"
	fixForeign = "delete it, or have the chart name its own otherwise"
)

// hooks returns the hooks among objects. It refuses one in place of an object that is not the
// release's.
func (c *cluster) hooks(list kube.ResourceList) (all []*unstructured.Unstructured, err error) {
	for _, info := range list {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok || u.GetAnnotations()[release.HookAnnotation] == "" {
			continue
		}
		if c.adopted[idOf(u)] {
			all = append(all, u)
			continue
		}
		foreign, err := c.foreign(info)
		if err != nil {
			return nil, err
		}
		if foreign {
			return nil, problem.Errorf(problem.Conflict, fixForeign, "%s: %s", named(info), isForeign)
		}
		all = append(all, u)
	}
	return all, nil
}

// foreign reports whether another object has the name of a hook.
func (c *cluster) foreign(info *resource.Info) (bool, error) {
	if info.Name == "" { // the API server chooses it
		return false, nil
	}
	live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, kubeproblem.From(err, "reading "+named(info))
	}
	u, ok := live.(*unstructured.Unstructured)
	return !ok || !owned(u, c.key), nil
}

// adoptable returns the hooks of a revision.
func adoptable(r *release.Release) (map[string]bool, error) {
	all := map[string]bool{}
	for _, h := range r.Hooks {
		objects, err := parseObjects(h.Path, h.Manifest, "")
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			all[idOf(o.Unstructured)] = true
		}
	}
	return all, nil
}
