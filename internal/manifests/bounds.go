package manifests

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// bounds decide where objects may go: by the cluster's kinds, the agent's namespaces and the
// policy.
type bounds struct {
	api        *api
	scope      objectmeta.Scope
	policy     func(namespace string, o runnerapi.ObjectIntent) error // nil admits everything
	defined    map[schema.GroupVersionKind]*meta.RESTMapping
	made       map[string]bool  // namespaces that come with the set
	namespaces map[string]error // those already checked
}

func (c *api) readNamespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return c.objects.Resource(admission.Resource).Get(ctx, name, metav1.GetOptions{})
}

// mapping finds the resource of a kind, in the cluster or in the set itself.
func (b *bounds) mapping(ref Ref) (m *meta.RESTMapping, pending bool, err error) {
	gvk := gvkOf(ref)
	m, err = b.api.kinds.mapping(gvk)
	switch {
	case err == nil:
		return m, false, nil
	case b.defined[gvk] != nil:
		return b.defined[gvk], true, nil
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, false, noKind(ref)
	}
	return nil, false, kubeproblem.From(err, "reading the cluster's kinds")
}

// allowed checks whether an object may go to its place: first by the agent's own bounds, then by
// the policy.
func (b *bounds) allowed(ctx context.Context, i *item) error {
	namespace := i.object.GetNamespace()
	if namespace != "" {
		pending, err := b.manages(ctx, namespace)
		if err != nil {
			return err
		}
		i.pending = i.pending || pending
	}
	return b.admit(i.out.ManifestRef, i.brings)
}

// admit asks the policy about an object. A Namespace object is in no namespace; it is also asked
// about as a namespace.
func (b *bounds) admit(ref Ref, o runnerapi.ObjectIntent) error {
	if b.policy == nil {
		return nil
	}
	if err := b.policy(ref.Namespace, o); err != nil || o.Kind != kindNamespace {
		return err
	}
	return b.policy(ref.Name, o)
}

// manages checks whether the agent manages a namespace, or whether the set is about to create it.
func (b *bounds) manages(ctx context.Context, name string) (pending bool, err error) {
	if b.made[name] && b.scope.Covers(name) {
		_, err := b.api.readNamespace(ctx, name)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
	}
	return false, b.managed(ctx, name)
}

// managed refuses a namespace that the agent does not manage.
func (b *bounds) managed(ctx context.Context, name string) error {
	if known, asked := b.namespaces[name]; asked {
		return known
	}
	_, err := admission.Namespace(ctx, b.scope, name, b.api.readNamespace)
	if b.namespaces == nil {
		b.namespaces = map[string]error{}
	}
	b.namespaces[name] = err
	return err
}
