package kubetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

// MakeRoom ends what a test has left running: the node has room for few pods, and an App that does
// not fit gets a diagnosis. A test may have left an App with a finalizer, which MakeRoom removes.
func (e *Env) MakeRoom(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var apps v1alpha1.List
	assert.NoError(t, e.Client.List(ctx, &apps, client.InNamespace(namespace)))
	for i := range apps.Items {
		a := &apps.Items[i]
		held := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		assert.NoError(t, client.IgnoreNotFound(e.Client.Delete(ctx, a)))
		assert.NoError(t, client.IgnoreNotFound(e.Client.Patch(ctx, a, held)))
	}
	for _, o := range []client.Object{
		&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.CronJob{}, &batchv1.Job{}, &corev1.Pod{},
	} {
		assert.NoError(t, e.Client.DeleteAllOf(ctx, o, client.InNamespace(namespace),
			client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0)))
	}
}
