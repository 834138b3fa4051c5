package failures

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// Objects are the objects of a failure, its workload first.
type Objects []client.Object

// template returns the workload's pod template.
func (o Objects) template() *corev1.PodTemplateSpec {
	switch w := o[0].(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template
	case *appsv1.StatefulSet:
		return &w.Spec.Template
	case *appsv1.DaemonSet:
		return &w.Spec.Template
	case *batchv1.Job:
		return &w.Spec.Template
	case *batchv1.CronJob:
		return &w.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// pod returns a change of the pods.
func pod(change func(*corev1.PodSpec)) func(Objects) {
	return func(o Objects) { change(&o.template().Spec) }
}

// bare replaces the workload by one of its pods.
func bare(o Objects) {
	t := o.template()
	o[0] = &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: t.Spec,
		ObjectMeta: metav1.ObjectMeta{Name: o[0].GetName(), Namespace: o[0].GetNamespace(), Labels: t.Labels},
	}
}

// Manifest returns what a failure's App would become, in the form that a user without Apps writes.
func (f Failure) Manifest(t *testing.T, namespace string) string {
	t.Helper()
	children, err := workload.Children(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: f.Name}, Spec: f.Spec})
	require.NoError(t, err)
	objects := Objects(children)
	if f.Change != nil {
		f.Change(objects)
	}
	var out strings.Builder
	for _, o := range objects {
		o.SetOwnerReferences(nil)
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		delete(raw, "status")
		text, err := yaml.Marshal(raw)
		require.NoError(t, err)
		out.WriteString("---\n" + string(text))
	}
	return unmarked.Replace(out.String())
}

// unmarked removes the marks of the agent's own objects everywhere.
var unmarked = strings.NewReplacer(objectmeta.ManagedBy+": "+objectmeta.ManagedByAgent, "of: the-test", objectmeta.App+":", "app:", objectmeta.Run+":", "run:")
