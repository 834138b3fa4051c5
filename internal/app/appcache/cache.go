package appcache

import (
	"maps"

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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// NewScheme returns a scheme with only the kinds that the agent handles.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme,
		autoscalingv2.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NewMapper returns a table of the few kinds that the agent needs, which avoids asking the API
// server for all that it serves. Lists in the cache of an agent that is limited to some namespaces
// are requested by their own kind.
func NewMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(kind schema.GroupVersionKind, scope meta.RESTScope) {
		m.Add(kind, scope)
		kind.Kind += "List"
		m.Add(kind, scope)
	}
	for group, kinds := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:        {"Pod", "Service", "Event", "ConfigMap", "Secret"},
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
	add(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), meta.RESTScopeNamespace)
	add(v1alpha1.GroupVersion.WithKind("Source"), meta.RESTScopeNamespace)
	m.Add(CRDKind, meta.RESTScopeRoot)
	add(HTTPRouteKind, meta.RESTScopeNamespace)
	add(ReferenceGrantKind, meta.RESTScopeNamespace)
	for _, suffix := range []string{"", "List"} { // meta would guess gatewaies
		of := GatewayKind.GroupVersion()
		m.AddSpecific(of.WithKind(GatewayKind.Kind+suffix), of.WithResource("gateways"), of.WithResource("gateway"), meta.RESTScopeNamespace)
	}
	add(GatewayClassKind, meta.RESTScopeRoot)
	m.AddSpecific(PodMetricsKind, PodMetricsKind.GroupVersion().WithResource("pods"),
		PodMetricsKind.GroupVersion().WithResource("pod"), meta.RESTScopeNamespace)
	return m
}

// CRDKind is read as metadata only: its types would need more memory than all the rest.
var CRDKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// The kinds of the Gateway API that the agent reads, where the cluster has them. They are read
// without types: a field that this version does not know is then seen, and not dropped.
var (
	HTTPRouteKind      = schema.GroupVersionKind{Group: gatewayAPI, Version: "v1", Kind: "HTTPRoute"}
	GatewayKind        = schema.GroupVersionKind{Group: gatewayAPI, Version: "v1", Kind: "Gateway"}
	GatewayClassKind   = schema.GroupVersionKind{Group: gatewayAPI, Version: "v1", Kind: "GatewayClass"}
	ReferenceGrantKind = schema.GroupVersionKind{Group: gatewayAPI, Version: "v1beta1", Kind: "ReferenceGrant"}
)

const gatewayAPI = "gateway.networking.k8s.io"

// CacheOptions keeps in memory only objects with the agent's label, and of those only what is read.
// Secrets and ConfigMaps are never cached. If namespaces are given, only those are watched.
func CacheOptions(namespaces []string) cache.Options {
	marked := labels.SelectorFromSet(objectmeta.Labels())
	byObject := map[client.Object]cache.ByObject{
		&v1alpha1.App{}:      {},
		&corev1.Namespace{}:  {Label: marked},
		&appsv1.ReplicaSet{}: {Label: marked, Transform: stripReplicaSet},
		&corev1.Pod{}:        {Label: marked, Transform: stripPod},
		&batchv1.Job{}:       {Label: marked, Transform: stripJob},
	}
	for _, o := range Wholes() {
		byObject[o] = cache.ByObject{Label: marked}
	}
	return cache.Options{
		DefaultTransform: strip, ReaderFailOnMissingInformer: true, ByObject: byObject, DefaultNamespaces: onlyIn(namespaces),
	}
}

func onlyIn(namespaces []string) map[string]cache.Config {
	if len(namespaces) == 0 {
		return nil
	}
	only := make(map[string]cache.Config, len(namespaces))
	for _, name := range namespaces {
		only[name] = cache.Config{}
	}
	return only
}

// Wholes returns the kinds that are cached whole, to be compared with the desired objects.
func Wholes() []client.Object {
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
		// Kubernetes copies all annotations of the Deployment into each.
		maps.DeleteFunc(rs.Annotations, func(key, _ string) bool { return key != objectmeta.DeploymentRevision })
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

// ClientOptions makes a read after a write see that write.
func ClientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}}
}

// Untouched makes a list share its contents with the cache and not copy them. It is for callers
// that only read, and that iterate over all Apps.
var Untouched = client.UnsafeDisableDeepCopy

// NamespaceMeta returns an empty Namespace that is read as metadata only.
func NamespaceMeta() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return m
}

// PodMetricsKind is what metrics-server reports on a pod.
var PodMetricsKind = schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}
