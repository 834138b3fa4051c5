package appcache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Get reads an App from the cache, which is never older than the last write through it. It asks the
// API server about an App that the cache does not know: another replica may have created it.
func (s *Store) Get(ctx context.Context, key runnerapi.Key) (*v1alpha1.App, error) {
	a := &v1alpha1.App{}
	err := s.Cached.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, a)
	if apierrors.IsNotFound(err) {
		a, err = s.GetLive(ctx, key)
	}
	if err != nil {
		return nil, ReadProblem(err, key)
	}
	return a, nil
}

// ReadProblem turns an error of reading an App into a problem for the caller.
func ReadProblem(err error, key runnerapi.Key) error {
	if apierrors.IsNotFound(err) {
		return problem.Errorf(problem.NotFound, "check the name and the namespace, or deploy it first", "there is no App %s", key)
	}
	return kubeproblem.From(err, "reading App "+key.String())
}

// Admit refuses a command that comes too early or reaches too far.
func (s *Store) Admit(ctx context.Context, namespace string) error {
	if !s.Ready() {
		return NotReady()
	}
	_, err := admission.Namespace(ctx, s.Scope, namespace, s.readNamespace)
	return err
}

// Manages reports whether the agent manages a namespace.
func (s *Store) Manages(ctx context.Context, namespace string) (bool, error) {
	_, ok, err := admission.Manages(ctx, s.Scope, namespace, s.readNamespace)
	return ok, err
}

// readNamespace reads a namespace from the cache. One that the cache does not know may have been
// handed over a moment ago.
func (s *Store) readNamespace(ctx context.Context, namespace string) (*metav1.PartialObjectMetadata, error) {
	ns := NamespaceMeta()
	err := s.Cached.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	if apierrors.IsNotFound(err) {
		err = s.Live.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	}
	return ns, err
}

// ManagedNamespaces returns the namespaces that the agent manages.
func (s *Store) ManagedNamespaces(ctx context.Context) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(NamespaceMeta().GroupVersionKind().GroupVersion().WithKind("NamespaceList"))
	if err := s.Cached.List(ctx, list); err != nil {
		return nil, kubeproblem.From(err, "listing namespaces")
	}
	names := map[string]bool{}
	for _, ns := range list.Items {
		names[ns.Name] = s.Scope.Covers(ns.Name)
	}
	return names, nil
}

// GetLive reads the App from the API server, not from the cache.
func (s *Store) GetLive(ctx context.Context, key runnerapi.Key) (*v1alpha1.App, error) {
	a := &v1alpha1.App{}
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, a)
	return a, err
}

// Pods returns the pods of an App, including those of its older specs.
func (s *Store) Pods(ctx context.Context, a *v1alpha1.App) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := s.Cached.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(objectmeta.AppLabels(a.Name))); err != nil {
		return nil, fmt.Errorf("list the pods of App %s: %w", a.Key(), err)
	}
	var pods []*corev1.Pod
	for i := range list.Items { // pods that a user labelled by hand are not the App's
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && workload.MayOwn(a, owner) {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods, nil
}

// NotReady returns the error for a command that comes before the caches are filled.
func NotReady() error {
	return problem.Errorf(problem.Unavailable, "try again in a second", "the agent is still reading the cluster").
		WithRetryAfter(time.Second)
}
