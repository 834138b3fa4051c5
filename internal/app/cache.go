package app

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// newScheme returns a scheme with only the kinds that the agent handles.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme,
		autoscalingv2.AddToScheme, policyv1.AddToScheme, AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newMapper returns a table of the few kinds that the agent needs, which avoids asking the API
// server for all that it serves. Lists in the cache of an agent that is limited to some namespaces
// are requested by their own kind.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(kind schema.GroupVersionKind, scope meta.RESTScope) {
		m.Add(kind, scope)
		kind.Kind += "List"
		m.Add(kind, scope)
	}
	for group, kinds := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:        {"Pod", "Service", "Event", "ConfigMap"},
		appsv1.SchemeGroupVersion:        {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"},
		batchv1.SchemeGroupVersion:       {"Job", "CronJob"},
		networkingv1.SchemeGroupVersion:  {"Ingress"},
		autoscalingv2.SchemeGroupVersion: {"HorizontalPodAutoscaler"},
		policyv1.SchemeGroupVersion:      {"PodDisruptionBudget"},
	} {
		for _, kind := range kinds {
			add(group.WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("IngressClass"), meta.RESTScopeRoot)
	add(GroupVersion.WithKind(Kind), meta.RESTScopeNamespace)
	m.Add(crdKind, meta.RESTScopeRoot)
	m.AddSpecific(podMetricsKind, podMetricsKind.GroupVersion().WithResource("pods"),
		podMetricsKind.GroupVersion().WithResource("pod"), meta.RESTScopeNamespace)
	return m
}

// crdKind is read as metadata only: its types would need more memory than all the rest.
var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// cacheOptions keeps in memory only objects with the agent's label, and of those only what is read.
// Secrets and ConfigMaps are never cached. If namespaces are given, only those are watched.
func cacheOptions(namespaces []string) cache.Options {
	marked := labels.SelectorFromSet(managed.Labels())
	byObject := map[client.Object]cache.ByObject{
		&App{}:               {},
		&corev1.Namespace{}:  {Label: marked},
		&appsv1.ReplicaSet{}: {Label: marked, Transform: stripReplicaSet},
		&corev1.Pod{}:        {Label: marked, Transform: stripPod},
		&batchv1.Job{}:       {Label: marked, Transform: stripJob},
	}
	for _, o := range wholes() {
		byObject[o] = cache.ByObject{Label: marked}
	}
	options := cache.Options{DefaultTransform: strip, ReaderFailOnMissingInformer: true, ByObject: byObject}
	for _, name := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[name] = cache.Config{}
	}
	return options
}

// wholes returns the kinds that are cached whole, to be compared with the desired objects.
func wholes() []client.Object {
	return []client.Object{
		&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.CronJob{}, &corev1.Service{},
		&networkingv1.Ingress{}, &autoscalingv2.HorizontalPodAutoscaler{}, &policyv1.PodDisruptionBudget{},
	}
}

// strip removes the fields that the agent does not read.
func strip(in any) (any, error) {
	if o, err := meta.Accessor(in); err == nil {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	return in, nil
}

func stripReplicaSet(in any) (any, error) {
	if rs, ok := in.(*appsv1.ReplicaSet); ok {
		rs.Spec = appsv1.ReplicaSetSpec{Replicas: rs.Spec.Replicas}
	}
	return strip(in)
}

// stripJob removes fields that cannot change.
func stripJob(in any) (any, error) {
	if j, ok := in.(*batchv1.Job); ok {
		j.Spec = batchv1.JobSpec{
			Completions: j.Spec.Completions, Parallelism: j.Spec.Parallelism,
			BackoffLimit: j.Spec.BackoffLimit, ActiveDeadlineSeconds: j.Spec.ActiveDeadlineSeconds,
		}
		j.Status.UncountedTerminatedPods = nil
	}
	return strip(in)
}

// stripPod keeps what the diagnosis and the logs need of a pod. It removes the environment, which
// may hold secrets.
func stripPod(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			InitContainers: slim(pod.Spec.InitContainers),
			Containers:     slim(pod.Spec.Containers),
			RestartPolicy:  pod.Spec.RestartPolicy,

			ImagePullSecrets: pod.Spec.ImagePullSecrets,
			SchedulerName:    pod.Spec.SchedulerName,
			SchedulingGates:  pod.Spec.SchedulingGates,
			Volumes:          claimed(pod.Spec.Volumes),
		}
		pod.Annotations = nil
		pod.Status.PodIPs, pod.Status.HostIPs = nil, nil
	}
	return strip(in)
}

// claimed returns the volumes that may keep a pod waiting.
func claimed(volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range volumes {
		if v.PersistentVolumeClaim != nil || v.Secret != nil || v.ConfigMap != nil {
			out = append(out, v)
		}
	}
	return out
}

func slim(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		out = append(out, corev1.Container{
			Name: c.Name, Image: c.Image, Resources: c.Resources, Ports: ofTheNode(c.Ports), RestartPolicy: c.RestartPolicy,
			StartupProbe: c.StartupProbe, ReadinessProbe: c.ReadinessProbe, LivenessProbe: c.LivenessProbe,
		})
	}
	return out
}

// ofTheNode returns the ports that a pod takes of its node. The agent asks for none, but admission
// webhooks in the cluster may add some.
func ofTheNode(ports []corev1.ContainerPort) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, p := range ports {
		if p.HostPort != 0 {
			out = append(out, p)
		}
	}
	return out
}

// clientOptions makes a read after a write see that write.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}}
}

// untouched makes a list share its contents with the cache and not copy them. It is for callers
// that only read, and that iterate over all Apps.
var untouched = client.UnsafeDisableDeepCopy

// namespaceMeta returns an empty Namespace that is read as metadata only.
func namespaceMeta() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return m
}
