package app

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The defaults for what an App's spec leaves out.
const (
	defaultReplicas      = 1
	defaultCPURequest    = "50m"
	defaultMemoryRequest = "64Mi"
	gracePeriod          = 30 // seconds from SIGTERM to SIGKILL
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

// childMeta returns the metadata of an object made from an App: its mark, and the owner reference
// by which Kubernetes deletes it after the App.
func childMeta(a *App) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: a.Namespace, Name: a.Name, Labels: managed.AppLabels(a.Name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(a, GroupVersion.WithKind(Kind))},
	}
}

// Children returns the objects that an App becomes, its workload first, before the agent marks them
// with their digest.
func Children(a *App) []client.Object { return children(a) }

// children returns the objects that an App becomes, its workload first.
func children(a *App) []client.Object {
	if a.Spec.Type != runnerapi.TypePipeline {
		return append([]client.Object{workload(a)}, besides(a)...)
	}
	jobs := make([]client.Object, 0, len(a.Spec.Jobs))
	for _, spec := range a.Spec.Jobs {
		jobs = append(jobs, pipelineJob(a, spec))
	}
	return jobs
}

// besides returns the objects that an App becomes beside its workload.
func besides(a *App) []client.Object {
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

// possible returns empty objects under all names that an App of any type may take. Those that bring
// it traffic come first.
func possible(a *App) []client.Object {
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

// blank returns the empty workload of an App of this type.
func blank(t runnerapi.AppType) client.Object {
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

func owns(a *App, o metav1.Object) bool { return metav1.IsControlledBy(o, a) }

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// kindPath names an object as kubectl does: deployment/shop.
func kindPath(kind, name string) string { return strings.ToLower(kind) + "/" + name }
