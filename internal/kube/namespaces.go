package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// namespaceRole is the ClusterRole that the agent has in each managed namespace, by a
	// RoleBinding with the name of the agent's ServiceAccount.
	namespaceRole = "pipeops-agent-namespace"
	// adopted marks a namespace that existed before the agent took it over: the agent never deletes
	// it.
	adopted = "pipeops.io/adopted"
)

// adoptionSeen is how long the API server may take to see a label: 1.5 s in all.
var adoptionSeen = wait.Backoff{Steps: 6, Duration: 50 * time.Millisecond, Factor: 2}

// Namespaces are the managed namespaces, with their bounds. It implements backend.Namespaces.
type Namespaces struct{ *Client }

var _ backend.Namespaces = Namespaces{}

// Namespaces returns the managed namespaces.
func (k *Client) Namespaces() Namespaces { return Namespaces{k} }

// Set makes a namespace the agent's. It creates it, or adopts it if the caller asks for
// that, and gives the agent its rights there.
func (k Namespaces) Set(ctx context.Context, name string, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) (runnerapi.Namespace, error) {
	if err := checkLabels(spec.Labels); err != nil {
		return runnerapi.Namespace{}, err
	}
	return k.set(ctx, name, spec, "", opts)
}

// SetPreview creates the namespace of a preview of a source, or updates its bounds. It refuses a
// namespace that was created for anything else.
func (k Namespaces) SetPreview(ctx context.Context, name string, source runnerapi.Key, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) error {
	_, err := k.set(ctx, name, spec, source.String(), opts)
	return err
}

// Previews returns the namespaces of previews, with the source of each. Those that are being
// deleted are left out.
func (k Namespaces) Previews(ctx context.Context) (map[string]runnerapi.Key, error) {
	all := map[string]runnerapi.Key{}
	err := k.pages(ctx, &corev1.NamespaceList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.NamespaceList).Items {
			ns := &list.(*corev1.NamespaceList).Items[i]
			namespace, name, isPreview := strings.Cut(ns.Annotations[objectmeta.PreviewOf], "/")
			if isPreview && ns.DeletionTimestamp.IsZero() && k.scope().Covers(ns.Name) {
				all[ns.Name] = runnerapi.Key{Namespace: namespace, Name: name}
			}
		}
		return nil
	}, client.MatchingLabels(objectmeta.Labels()))
	return all, kubeproblem.From(err, "listing namespaces")
}

// set creates or updates a namespace: for the preview of a source, unless previewOf is empty.
func (k Namespaces) set(ctx context.Context, name string, spec runnerapi.NamespaceSpec, previewOf string, opts runnerapi.WriteOptions) (runnerapi.Namespace, error) {
	if err := k.refuseWrite(name); err != nil {
		return runnerapi.Namespace{}, err
	}
	if errs := spec.Validate(); len(errs) > 0 {
		return runnerapi.Namespace{}, invalid(errs[0].Field, "correct the field", errs[0].Message)
	}
	have := &corev1.Namespace{}
	err := k.client.Get(ctx, client.ObjectKey{Name: name}, have)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return runnerapi.Namespace{}, kubeproblem.From(err, "reading namespace "+name)
	}
	takeOver := exists && !objectmeta.IsManaged(have)
	switch {
	case exists && !have.DeletionTimestamp.IsZero():
		return runnerapi.Namespace{}, problem.Errorf(problem.Busy, "wait until it is gone, then create it again",
			"namespace %s is being deleted", name)
	case takeOver && !spec.Adopt:
		return runnerapi.Namespace{}, problem.Errorf(problem.Conflict,
			"use another name, or send adopt: true to let the agent manage it as it is (the policy of the cluster's owner has to name adopt-namespace)",
			"namespace %s exists and was not created by the agent", name).WithField("adopt")
	case exists && previewOf != "" && have.Annotations[objectmeta.PreviewOf] != previewOf:
		return runnerapi.Namespace{}, problem.Errorf(problem.Conflict, "delete it, if it is not needed: pipeops-runner namespace delete AGENT "+name,
			"namespace %s exists, and not for a preview of source %s", name, previewOf)
	}
	if late, err := opts.Late(ctx); err != nil {
		return runnerapi.Namespace{}, err
	} else if late {
		return k.Get(ctx, name)
	}
	notes := map[string]string{}
	if takeOver || have.Annotations[adopted] != "" {
		notes[adopted] = "true"
	}
	if of := cmp.Or(previewOf, have.Annotations[objectmeta.PreviewOf]); of != "" {
		notes[objectmeta.PreviewOf] = of
	}
	if err := k.applyNamespace(ctx, name, spec.Labels, notes, opts); err != nil {
		return runnerapi.Namespace{}, kubeproblem.From(err, "writing namespace "+name)
	}
	if exists || !opts.DryRun { // a dry run created no namespace for the RoleBinding
		if err := k.bind(ctx, name, opts); err != nil {
			return runnerapi.Namespace{}, err
		}
		if err := k.applyBounds(ctx, name, spec, exists && (takeOver || have.Annotations[adopted] != ""), opts); err != nil {
			return runnerapi.Namespace{}, err
		}
	}
	if opts.DryRun {
		return runnerapi.Namespace{
			Name: name, Labels: spec.Labels, Phase: string(corev1.NamespaceActive),
			Quota: spec.Quota, Limits: spec.Limits, Network: spec.Network,
		}, nil
	}
	return k.Get(ctx, name)
}

// CreateMissing creates a namespace as Set does, unless there is one of that name.
func (k Namespaces) CreateMissing(ctx context.Context, name string) error {
	err := k.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		return kubeproblem.From(err, "reading namespace "+name)
	}
	_, err = k.Set(ctx, name, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	return err
}

// refuseWrite refuses namespaces that may not be managed. An agent that is limited to some
// namespaces creates and deletes none: these are the cluster owner's.
func (k Namespaces) refuseWrite(name string) error {
	if len(k.opts.Namespaces) > 0 {
		return problem.Errorf(problem.Forbidden, "ask the owner of the cluster, who names the agent's namespaces when installing it (PIPEOPS_NAMESPACES)",
			"the agent is limited to the namespaces %s and changes no namespace itself", strings.Join(k.opts.Namespaces, ", ")).WithField("path.namespace")
	}
	if !objectmeta.ReservedNamespace(name, k.opts.Namespace) {
		return nil
	}
	return problem.Errorf(problem.Forbidden, "use a namespace of your own",
		"namespace %s belongs to Kubernetes or to the agent itself and is never managed", name).WithField("path.namespace")
}

// checkLabels refuses labels that have a meaning to the agent or to Kubernetes' own security.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == objectmeta.ManagedBy || strings.HasPrefix(key, "pipeops.io/") || strings.Contains(key, "kubernetes.io/") && key != objectmeta.ManagedBy {
			return problem.Errorf(problem.Invalid, "use a label with a prefix of your own, or none",
				"label %q is Kubernetes' or the agent's own", key).WithField("labels." + key)
		}
	}
	return nil
}

// applyNamespace uses server-side apply without force: labels that others have set stay, labels
// that are no longer in the spec go.
func (k Namespaces) applyNamespace(ctx context.Context, name string, labels, notes map[string]string, opts runnerapi.WriteOptions) error {
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	ns.SetName(name)
	all := objectmeta.Labels()
	maps.Copy(all, labels)
	ns.SetLabels(all)
	sign(ns, opts.Caller)
	maps.Copy(notes, ns.GetAnnotations())
	ns.SetAnnotations(notes)
	return k.writer(opts).Apply(ctx, client.ApplyConfigurationFromUnstructured(ns), client.FieldOwner(objectmeta.FieldManager))
}

// Manage gives the agent its rights in a namespace that has just become managed, by any means.
func (k Namespaces) Manage(ctx context.Context, namespace string) error {
	return k.bind(ctx, namespace, runnerapi.WriteOptions{})
}

// bind gives the agent its rights in the namespace.
//
// The admission policy that bounds these rights reads the namespace's label from the API server's
// cache, which may be a moment behind the label just written.
func (k Namespaces) bind(ctx context.Context, namespace string, opts runnerapi.WriteOptions) error {
	want := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectmeta.FieldManager, Labels: objectmeta.Labels()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespaceRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: k.opts.Namespace, Name: k.opts.ServiceAccount}},
	}
	err := retry.OnError(adoptionSeen, apierrors.IsForbidden, func() error {
		return k.writer(opts).Create(ctx, want.DeepCopy(), client.FieldOwner(objectmeta.FieldManager))
	})
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return kubeproblem.From(err, "giving the agent its rights in namespace "+namespace)
	}
	have := &rbacv1.RoleBinding{}
	if err := k.client.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return kubeproblem.From(err, "reading RoleBinding "+want.Name)
	}
	if have.RoleRef != want.RoleRef || !slices.Contains(have.Subjects, want.Subjects[0]) {
		return problem.Errorf(problem.Conflict,
			fmt.Sprintf("delete it (kubectl -n %s delete rolebinding %s) and try again", namespace, want.Name),
			"RoleBinding %s in namespace %s exists and does not give the agent its rights", want.Name, namespace)
	}
	return nil
}

// Get returns one managed namespace.
func (k Namespaces) Get(ctx context.Context, name string) (runnerapi.Namespace, error) {
	ns, err := k.readNamespace(ctx, name)
	if err != nil {
		return runnerapi.Namespace{}, err
	}
	apps, err := k.countApps(ctx, client.InNamespace(name))
	if err != nil {
		return runnerapi.Namespace{}, err
	}
	out := wire(ns, apps[name])
	return out, k.readBounds(ctx, &out)
}

func (k Namespaces) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := k.client.Get(ctx, client.ObjectKey{Name: name}, ns)
	if err != nil {
		return nil, kubeproblem.From(err, "reading namespace "+name)
	}
	if !k.scope().Manages(ns) {
		return nil, runnerapi.NotManaged(name)
	}
	return ns, nil
}

// List returns all managed namespaces.
func (k Namespaces) List(ctx context.Context) ([]runnerapi.Namespace, error) {
	apps := map[string]int{}
	for _, where := range k.everywhere() {
		some, err := k.countApps(ctx, where)
		if err != nil {
			return nil, err
		}
		maps.Copy(apps, some)
	}
	all := []runnerapi.Namespace{}
	err := k.pages(ctx, &corev1.NamespaceList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.NamespaceList).Items {
			ns := &list.(*corev1.NamespaceList).Items[i]
			if k.scope().Covers(ns.Name) {
				all = append(all, wire(ns, apps[ns.Name]))
			}
		}
		return nil
	}, client.MatchingLabels(objectmeta.Labels()))
	if err != nil {
		return nil, kubeproblem.From(err, "listing namespaces")
	}
	slices.SortFunc(all, func(a, b runnerapi.Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Delete deletes a namespace that the agent created, with its content. The agent may not
// delete one that it adopted.
func (k Namespaces) Delete(ctx context.Context, name string, opts runnerapi.WriteOptions) error {
	if err := k.refuseWrite(name); err != nil {
		return err
	}
	ns, err := k.readNamespace(ctx, name)
	if err != nil {
		return err
	}
	if ns.Annotations[adopted] != "" {
		return problem.Errorf(problem.Conflict, "delete what the agent made in it, or have its owner delete it (kubectl delete namespace "+name+")",
			"namespace %s was there before the agent managed it, and may hold what is not the agent's", name)
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return err
	}
	removed, err := k.deleteApps(ctx, name, opts)
	if err != nil {
		return kubeproblem.From(err, "deleting the Apps of namespace "+name)
	}
	err = k.writer(opts).Delete(ctx, ns, client.Preconditions{UID: new(ns.UID)})
	if err == nil && !opts.DryRun {
		k.opts.Log.Info().Str("namespace", name).Strs("apps", removed).Msg("namespace and its contents deleted")
	}
	return kubeproblem.From(err, "deleting namespace "+name)
}

// deleteApps deletes the Apps first: their end is announced while the agent still has its rights in
// the namespace.
func (k Namespaces) deleteApps(ctx context.Context, namespace string, opts runnerapi.WriteOptions) ([]string, error) {
	var names []string
	err := k.pages(ctx, appList(), func(list client.ObjectList) error {
		for _, found := range list.(*metav1.PartialObjectMetadataList).Items {
			// Unstructured: the answer is the App if a finalizer keeps it, and the client could not
			// decode it into anything else.
			a := &unstructured.Unstructured{}
			a.SetGroupVersionKind(appKind)
			a.SetNamespace(found.Namespace)
			a.SetName(found.Name)
			if err := k.writer(opts).Delete(ctx, a); client.IgnoreNotFound(err) != nil {
				return err
			}
			names = append(names, found.Name)
		}
		return nil
	}, client.InNamespace(namespace))
	return names, err
}

// countApps counts Apps per namespace from their metadata only.
func (k Namespaces) countApps(ctx context.Context, opts ...client.ListOption) (map[string]int, error) {
	counts := map[string]int{}
	err := k.pages(ctx, appList(), func(list client.ObjectList) error {
		for _, a := range list.(*metav1.PartialObjectMetadataList).Items {
			counts[a.Namespace]++
		}
		return nil
	}, opts...)
	return counts, kubeproblem.From(err, "counting Apps")
}

func appList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appKind.GroupVersion().WithKind(appKind.Kind + "List"))
	return list
}

func wire(ns *corev1.Namespace, apps int) runnerapi.Namespace {
	labels := maps.Clone(ns.Labels)
	delete(labels, corev1.LabelMetadataName)
	return runnerapi.Namespace{
		Name: ns.Name, Labels: labels, Phase: string(ns.Status.Phase), Apps: apps, CreatedAt: ns.CreationTimestamp.Time,
	}
}
