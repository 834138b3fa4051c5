package workload

import (
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The defaults for what an App's spec leaves out.
const (
	defaultCPURequest    = "50m"
	defaultMemoryRequest = "64Mi"
	gracePeriod          = 30 // seconds from SIGTERM to SIGKILL
	servingSeconds       = 3  // for which a pod behind an ingress continues after its end was decided
	progressDeadline     = 600
	keptReplicaSets      = 5
	// settleSeconds is how long a pod without a readiness probe has to run
	// before it counts: else a process that dies at once would pass for ready,
	// and a rolling update would replace what works with what does not.
	settleSeconds    = 2
	defaultRetries   = 3    // of a Job's pod
	startingDeadline = 3600 // seconds that a CronJob's run may be late, for example after an outage
	keptRuns         = 3
)

// ChildMeta returns the metadata of an object made from an App: its mark, and the owner reference
// by which Kubernetes deletes it after the App.
func ChildMeta(a *v1alpha1.App) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: a.Namespace, Name: a.Name, Labels: objectmeta.AppLabels(a.Name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(a, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))},
	}
}

// Children returns the objects that an App becomes, its workload first, before the agent marks them
// with their digest.
func Children(a *v1alpha1.App) ([]client.Object, error) { return patched(a, Unpatched(a)...) }

// Unpatched returns the same without the patches of the App's spec.
func Unpatched(a *v1alpha1.App) []client.Object {
	if a.Spec.Type != runnerapi.TypePipeline {
		return append([]client.Object{of(a)}, besides(a)...)
	}
	jobs := make([]client.Object, 0, len(a.Spec.Jobs))
	for _, spec := range a.Spec.Jobs {
		jobs = append(jobs, pipelineJob(a, spec))
	}
	return jobs
}

// Besides returns the objects that an App becomes beside its workload.
func Besides(a *v1alpha1.App) ([]client.Object, error) { return patched(a, besides(a)...) }

func besides(a *v1alpha1.App) []client.Object {
	var all []client.Object
	if s := service(a); s != nil {
		all = append(all, s)
	}
	if s := headless(a); s != nil {
		all = append(all, s)
	}
	if i := ingress(a); i != nil {
		all = append(all, i)
	}
	if h := autoscaler(a); h != nil {
		all = append(all, h)
	}
	if b := budget(a); b != nil {
		all = append(all, b)
	}
	return all
}

// Possible returns empty objects under all names that an App of any type may take. Those that bring
// it traffic come first.
func Possible(a *v1alpha1.App) []client.Object {
	meta := metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}
	peers := meta
	peers.Name = headlessName(a.Name)
	return []client.Object{
		&networkingv1.Ingress{ObjectMeta: meta},
		&corev1.Service{ObjectMeta: meta},
		&corev1.Service{ObjectMeta: peers},
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta},
		&appsv1.Deployment{ObjectMeta: meta},
		&appsv1.StatefulSet{ObjectMeta: meta},
		&appsv1.DaemonSet{ObjectMeta: meta},
		&batchv1.CronJob{ObjectMeta: meta},
		&batchv1.Job{ObjectMeta: meta},
	}
}

// Blank returns the empty workload of an App of this type.
func Blank(t runnerapi.AppType) client.Object {
	switch t {
	case runnerapi.TypeStatefulSet:
		return &appsv1.StatefulSet{}
	case runnerapi.TypeDaemonSet:
		return &appsv1.DaemonSet{}
	case runnerapi.TypeJob, runnerapi.TypePipeline:
		return &batchv1.Job{}
	case runnerapi.TypeCronJob:
		return &batchv1.CronJob{}
	}
	return &appsv1.Deployment{}
}

// Owns reports whether an object was made from the App.
func Owns(a *v1alpha1.App, o metav1.Object) bool { return metav1.IsControlledBy(o, a) }

// KindOf returns the kind of an object of a Go type.
func KindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// KindPath names an object as kubectl does: deployment/shop.
func KindPath(kind, name string) string { return strings.ToLower(kind) + "/" + name }

// IsWorkload reports whether an object creates pods.
func IsWorkload(o client.Object) bool {
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *batchv1.CronJob:
		return true
	}
	return false
}
