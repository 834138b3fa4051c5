package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// remove checks, before anything is changed, whether the objects that only the old revision holds
// can be removed. Helm itself silently leaves the objects that it may not read. From here on the
// cluster treats that revision as the current one.
func (c *cluster) remove(had *release.Release, next []*object) ([]runnerapi.ReleaseObject, error) {
	c.stands = had.Manifest
	gone, err := leaving(had, next)
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	client, mapper, err := c.objects()
	if err != nil {
		return nil, err
	}
	all := make([]runnerapi.ReleaseObject, len(gone))
	for i, o := range gone {
		c.say("looking whether %s can go (%d of %d)", o, i+1, len(gone))
		change, err := c.removeOne(client, mapper, o)
		if err != nil {
			return nil, err
		}
		all[i] = described(o, change)
	}
	return all, nil
}

// idOf identifies an object among those of one release.
func idOf(u *unstructured.Unstructured) string {
	return u.GroupVersionKind().GroupKind().String() + "/" + u.GetName()
}

// leaving returns the objects that a revision holds and the next one does not. Hooks are part of
// neither: they are never removed with a release.
func leaving(had *release.Release, next []*object) ([]*object, error) {
	all, err := parseObjects("release "+had.Name, had.Manifest, "")
	if err != nil {
		return nil, err
	}
	stays := map[string]bool{}
	for _, o := range next {
		if o.hook == "" {
			stays[idOf(o.Unstructured)] = true
		}
	}
	return slices.DeleteFunc(all, func(o *object) bool {
		return stays[idOf(o.Unstructured)] || strings.EqualFold(strings.TrimSpace(o.GetAnnotations()[kube.ResourcePolicyAnno]), kube.KeepPolicy)
	}), nil
}

// removable refuses an object that the release may not remove.
func (l limits) removable(o *object) error {
	if o.GetNamespace() != "" && o.GetNamespace() != l.namespace {
		return problem.Errorf(problem.Forbidden, "the owner of the cluster can do it with helm",
			"it is in namespace %s: the agent removes what is in the namespace of the release, here %s", o.GetNamespace(), l.namespace)
	}
	return l.CheckRemoval(o.Unstructured)
}

// removeOne returns what would happen to an object: delete, or none if it is gone or belongs to
// another owner.
func (c *cluster) removeOne(client dynamic.Interface, mapper meta.RESTMapper, o *object) (string, error) {
	if err := c.limits.removable(o); err != nil {
		return "", about(o, err)
	}
	gvk := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return "", problem.Errorf(problem.Conflict, "bring the kind back, or have helm mapkubeapis correct what is kept of the release",
			"%s (%s): the cluster has no kind %s in %s any more", o, o.source, gvk.Kind, o.GetAPIVersion())
	}
	if err != nil {
		return "", kubeproblem.From(err, "finding kind "+gvk.Kind)
	}
	var at dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		at = client.Resource(mapping.Resource).Namespace(c.key.Namespace)
	}
	change, err := tryRemoval(c.ctx, at, c.key, o.GetName())
	if err != nil {
		return "", irremovable(o, mapping, err)
	}
	return change, nil
}

// tryRemoval deletes an object in a dry run.
func tryRemoval(ctx context.Context, at dynamic.ResourceInterface, key runnerapi.Key, name string) (string, error) {
	live, err := at.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none", nil
	}
	if err != nil {
		return "", err
	}
	if !owned(live, key) {
		return "none", nil
	}
	uid := live.GetUID()
	err = at.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return "none", nil // another client is deleting it
	}
	if err != nil && !strings.Contains(err.Error(), "does not support dry run") {
		return "", err
	}
	return "delete", nil
}

// irremovable returns an error that names the object that stays, and the right that the agent
// lacks.
func irremovable(o *object, mapping *meta.RESTMapping, err error) error {
	p := &problem.Error{}
	if !errors.As(kubeproblem.From(err, "removing "+o.String()), &p) {
		return fmt.Errorf("%s (%s): %w", o, o.source, err)
	}
	q := *p
	q.Detail = fmt.Sprintf("%s (%s): %s", o, o.source, p.Detail)
	if p.Code == problem.Forbidden && strings.HasPrefix(p.Detail, "the agent may not ") {
		q.Fix = fmt.Sprintf("have the owner of the cluster grant get and delete of %s to the ServiceAccount pipeops-agent by a role "+
			"(docs/deployer/helm-releases.md); or remove it with helm. Nothing was changed", mapping.Resource.GroupResource())
	}
	return &q
}

// spare excludes objects that by now belong to another owner from those that Helm takes for the
// release's: an upgrade would delete them. An unreadable object is an error: Helm would silently
// leave it.
func (c *cluster) spare(original, target kube.ResourceList) (kube.ResourceList, error) {
	var failed error
	mine := original.Filter(func(info *resource.Info) bool {
		if failed != nil || target.Contains(info) {
			return true
		}
		live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
		if apierrors.IsNotFound(err) {
			return false
		}
		if err != nil {
			failed = fmt.Errorf("%s: %w", named(info), err)
			return true
		}
		u, ok := live.(*unstructured.Unstructured)
		return !ok || owned(u, c.key)
	})
	return mine, failed
}

// ending refuses a release whose deletion hooks may not be created.
func (c *cluster) ending(r *release.Release) error {
	var all []*object
	for _, h := range r.Hooks {
		if !slices.Contains(h.Events, release.HookPreDelete) && !slices.Contains(h.Events, release.HookPostDelete) {
			continue
		}
		objects, err := parseObjects(h.Path, h.Manifest, "delete")
		if err != nil {
			return err
		}
		all = append(all, objects...)
	}
	err := c.permitted(all)
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return problem.Errorf(p.Code, "the owner of the cluster can do it with helm. Nothing was changed", "a hook of its end cannot be run: %s", p.Detail)
	}
	return err
}
