package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// export deploys an App and returns the objects that the agent made of it, in the form that a user
// would write for kubectl.
func (b *bench) export(ctx context.Context, spec runnerapi.AppSpec) ([]unstructured.Unstructured, error) {
	key := runnerapi.Key{Namespace: readyNamespace, Name: "exported"}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, err := b.watchReady(watching, key.Namespace)
	if err != nil {
		return nil, err
	}
	if _, err := b.client.Apps().Deploy(ctx, key, spec, runnerapi.WriteOptions{}); err != nil {
		return nil, err
	}
	if _, err := ready(ctx); err != nil {
		return nil, err
	}
	var objects []unstructured.Unstructured
	for _, of := range []struct{ apiVersion, kind string }{{"apps/v1", "Deployment"}, {"v1", "Service"}} {
		obj := unstructured.Unstructured{Object: map[string]any{"apiVersion": of.apiVersion, "kind": of.kind}}
		if err := b.sys.Kube.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &obj); err != nil {
			return nil, fmt.Errorf("read what the agent made: %w", err)
		}
		strip(&obj)
		objects = append(objects, obj)
	}
	if err := b.removeApp(key)(ctx); err != nil {
		return nil, err
	}
	return objects, b.awaitEmpty(ctx)
}

// strip removes what the cluster added.
func strip(obj *unstructured.Unstructured) {
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	unstructured.RemoveNestedField(obj.Object, "status")
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(obj.Object, "spec", field)
	}
}

func (b *bench) removeObjects(ctx context.Context, objects []unstructured.Unstructured) error {
	for i := range objects {
		err := b.sys.Kube.Delete(ctx, objects[i].DeepCopy(), client.PropagationPolicy("Background"))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
