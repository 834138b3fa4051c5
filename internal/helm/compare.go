package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Helm's marks of whose an object is.
const (
	helmBy        = "app.kubernetes.io/managed-by"
	helmName      = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
)

// comparison is how a command compares.
type comparison struct {
	force   bool              // take over fields of others
	refused map[*object]error // earlier
	events  []string          // of the hooks that the command runs
	adopted map[string]bool   // hooks of a release that is taken over, which have no marks
}

// compare lets the API server report what would happen to each object, without a change. What it
// would refuse is refused before the first object is created, together with earlier refusals.
func compare(ctx context.Context, c *cluster, key runnerapi.Key, objects []*object, how comparison) ([]runnerapi.ReleaseObject, error) {
	client, mapper, err := c.objects()
	if err != nil {
		return nil, err
	}
	all := make([]runnerapi.ReleaseObject, 0, len(objects))
	var refused []error
	for i, o := range objects {
		if err := how.refused[o]; err != nil {
			refused = append(refused, err)
			continue
		}
		c.say("comparing %s with the cluster (%d of %d)", o, i+1, len(objects))
		change, err := compareOne(ctx, client, mapper, key, o, objects, how)
		if p, ok := errors.AsType[*problem.Error](err); ok && !p.Passing() {
			refused = append(refused, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", o, o.where(), err)
		}
		all = append(all, described(o, change))
	}
	return all, problem.Together(refused)
}

// objects returns how single objects of any kind are asked for.
func (c *cluster) objects() (dynamic.Interface, meta.RESTMapper, error) {
	config, err := c.Factory.ToRESTConfig()
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	mapper, err := restMapper(c)
	return client, mapper, err
}

func restMapper(c *cluster) (meta.RESTMapper, error) {
	f, ok := c.Factory.(interface {
		ToRESTMapper() (meta.RESTMapper, error)
	})
	if !ok {
		return nil, errors.New("helm: the client knows no kinds")
	}
	return f.ToRESTMapper()
}

func compareOne(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, key runnerapi.Key, o *object, all []*object, how comparison) (string, error) {
	gvk := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) && definitionOf(o, all) != nil {
		return "unknown", nil
	}
	if meta.IsNoMatchError(err) {
		return "", unknownKind(o)
	}
	if err != nil {
		return "", kubeproblem.From(err, "finding kind "+gvk.Kind)
	}
	var at dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		at = client.Resource(mapping.Resource).Namespace(key.Namespace)
	}
	if o.GetName() == "" {
		return "create", nil
	}
	live, err := at.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", about(o, kubeproblem.From(err, "reading "+o.String()))
	}
	if err != nil {
		live = nil
	}
	if o.hook == definition { // it may be there already
		return changeOf(live, nil), nil
	}
	if live != nil && !owned(live, key) && (o.hook == "" || !how.adopted[idOf(o.Unstructured)]) {
		return "", inTemplate(o, problem.Errorf(problem.Conflict, fixForeign, isForeign))
	}
	if o.hook != "" { // it is made when its time comes
		return changeOf(live, nil), how.stuck(o, live)
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		return "", inTemplate(o, problem.Errorf(problem.Busy, "wait until it is gone, and send this again", "it is being deleted"))
	}
	then, err := try(ctx, at, marked(o, key, mapping), how.force)
	if err != nil && strings.Contains(err.Error(), "does not support dry run") {
		return changeOf(live, nil), nil // an admission webhook decides later
	}
	if apierrors.IsNotFound(err) && roleComesAlong(o, all) {
		return changeOf(live, nil), nil // the API server reads the role, also in a dry run
	}
	if err != nil {
		return "", about(o, untried(o, err))
	}
	return changeOf(live, then), nil
}

// stuck refuses a hook that an earlier run left in the cluster, and that Helm would not replace.
func (c comparison) stuck(o *object, live *unstructured.Unstructured) error {
	policies := o.GetAnnotations()[release.HookDeleteAnnotation]
	runs := slices.ContainsFunc(strings.Split(o.hook, ","), func(event string) bool { return slices.Contains(c.events, event) })
	if live == nil || !runs || policies == "" || strings.Contains(policies, string(release.HookBeforeHookCreation)) {
		return nil
	}
	resource := strings.ToLower(o.GetKind())
	if group := o.GroupVersionKind().Group; group != "" {
		resource += "." + group
	}
	return inTemplate(o, problem.Errorf(problem.Conflict,
		fmt.Sprintf("have the cluster's owner free the name: kubectl delete %s %s -n %s; or add %s to %s in the chart",
			resource, o.GetName(), live.GetNamespace(), release.HookBeforeHookCreation, release.HookDeleteAnnotation),
		"the hook of an earlier run is still there, and its %s (%s) does not replace it", release.HookDeleteAnnotation, policies))
}

// untried returns the API server's error about a try.
func untried(o *object, err error) error {
	switch {
	case kubeproblem.Mistyped(err) != "":
		return problem.Errorf(problem.Invalid, "correct the chart or its values", "%s", clip(kubeproblem.Mistyped(err))).WithField("chart")
	case kubeproblem.FieldConflicts(err) != "":
		return problem.Errorf(problem.Conflict, "have the chart not set these fields, or take them over: --force-conflicts (forceConflicts in the API)",
			"others have set fields of it: %s", clip(kubeproblem.FieldConflicts(err)))
	}
	return kubeproblem.From(err, "trying "+o.String())
}

// try returns a server-side apply as Helm's, which changes nothing.
func try(ctx context.Context, at dynamic.ResourceInterface, o *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return at.Patch(ctx, o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
		FieldManager: helmManager, Force: &force, DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
}

func unknownKind(o *object) error {
	return inTemplate(o, problem.Errorf(problem.Invalid, "install what brings this kind first, or correct apiVersion and kind",
		"the cluster has no kind %s in %s", o.GetKind(), o.GetAPIVersion()))
}

// definitionOf returns the definition of an object's kind, if the chart brings it, or nil.
func definitionOf(o *object, all []*object) *object {
	for _, d := range all {
		if d.kind() != "CustomResourceDefinition.apiextensions.k8s.io" {
			continue
		}
		kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
		group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
		if kind == o.GetKind() && group == o.GroupVersionKind().Group {
			return d
		}
	}
	return nil
}

// roleComesAlong reports whether the chart brings the role that a binding binds.
func roleComesAlong(o *object, all []*object) bool {
	if kind := o.kind(); kind != "RoleBinding.rbac.authorization.k8s.io" && kind != "ClusterRoleBinding.rbac.authorization.k8s.io" {
		return false
	}
	kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
	return slices.ContainsFunc(all, func(r *object) bool {
		return r.kind() == kind+".rbac.authorization.k8s.io" && r.GetName() == name
	})
}

// about names the object in a problem.
func about(o *object, err error) error {
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	return inTemplate(o, withRights(p))
}

// withRights names the command that grants what the agent lacks.
func withRights(p *problem.Error) *problem.Error {
	lacks := strings.HasPrefix(p.Detail, "the agent may not ") || strings.HasPrefix(p.Detail, "the agent grants no right that it does not hold itself")
	if p.Code != problem.Forbidden || !lacks {
		return p
	}
	q := *p
	q.Fix = "have the owner of the cluster grant it: for this chart with pipeops-agent chart allow, or for all with manifest-rights.yaml (docs/deployer/helm-releases.md)"
	return &q
}

// owned reports whether a release may change an object.
func owned(live *unstructured.Unstructured, key runnerapi.Key) bool {
	notes := live.GetAnnotations()
	return live.GetLabels()[helmBy] == "Helm" && notes[helmName] == key.Name && notes[helmNamespace] == key.Namespace
}

// marked returns an object as Helm sends it.
func marked(o *object, key runnerapi.Key, mapping *meta.RESTMapping) *unstructured.Unstructured {
	u := o.DeepCopy()
	mark(u, key)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		u.SetNamespace(key.Namespace)
	}
	return u
}

// mark marks an object as the release's.
func mark(u *unstructured.Unstructured, key runnerapi.Key) {
	labels, notes := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if notes == nil {
		notes = map[string]string{}
	}
	labels[helmBy], notes[helmName], notes[helmNamespace] = "Helm", key.Name, key.Namespace
	u.SetLabels(labels)
	u.SetAnnotations(notes)
}

// changeOf returns what happens to a live object; then is nil if that is unknown.
func changeOf(live, then *unstructured.Unstructured) string {
	switch {
	case live == nil:
		return "create"
	case then == nil:
		return "change"
	}
	a, b := live.DeepCopy(), then.DeepCopy()
	for _, u := range []*unstructured.Unstructured{a, b} {
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		u.SetGeneration(0)
	}
	if equality.Semantic.DeepEqual(a.Object, b.Object) {
		return "none"
	}
	return "change"
}
