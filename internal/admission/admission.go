// Package admission decides whether a command may reach a namespace. It is the only place with that
// decision: all parts of the agent that read or write for a Runner use it.
package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Resource is that of namespaces.
var Resource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Reader reads a namespace by name.
type Reader[T metav1.Object] func(ctx context.Context, name string) (T, error)

// Namespace returns the namespace of that name. The error says why commands in it are refused: the
// agent does not manage it, it does not exist, or it could not be read.
func Namespace[T metav1.Object](
	ctx context.Context, scope objectmeta.Scope, name string, read Reader[T],
) (T, error) {
	ns, ok, err := Manages(ctx, scope, name, read)
	switch {
	case err != nil:
		return ns, kubeproblem.From(err, "reading namespace "+name)
	case !ok:
		return ns, runnerapi.NotManaged(name)
	}
	return ns, nil
}

// Manages reports whether the agent manages the namespace, with Kubernetes' own error if it could
// not be read.
func Manages[T metav1.Object](
	ctx context.Context, scope objectmeta.Scope, name string, read Reader[T],
) (ns T, ok bool, err error) {
	ns, err = read(ctx, name)
	if apierrors.IsNotFound(err) {
		return ns, false, nil
	}
	return ns, err == nil && scope.Manages(ns), err
}
