package workload

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestMetrics_AnnotatedForPrometheus expects the annotations beside those of the spec.
func TestMetrics_AnnotatedForPrometheus(t *testing.T) {
	annotations := func(spec runnerapi.AppSpec) map[string]string {
		return podTemplate(&v1alpha1.App{Spec: spec}).Annotations
	}
	assert.Empty(t, annotations(runnerapi.AppSpec{Image: "a"}))
	assert.Equal(t, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "prometheus.io/path": "/metrics"},
		annotations(runnerapi.AppSpec{Image: "a", Metrics: &runnerapi.MetricsPort{Port: 9090}}))
	assert.Equal(t, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "80", "prometheus.io/path": "/m", "team": "shop"},
		annotations(runnerapi.AppSpec{
			Image: "a", Metrics: &runnerapi.MetricsPort{Port: 80, Path: "/m"},
			PodAnnotations: map[string]string{"team": "shop", "prometheus.io/port": "1"},
		}))
}

func TestPod_Placement(t *testing.T) {
	a := &v1alpha1.App{Spec: runnerapi.AppSpec{
		NodeSelector: map[string]string{"disk": "fast"}, PriorityClass: "high",
		Tolerations: []runnerapi.Toleration{{Key: "gpu", Value: "yes", Effect: "NoExecute", Seconds: new(int64(60))}, {Operator: "Exists"}},
	}}
	p := podTemplate(a).Spec
	assert.Equal(t, map[string]string{"disk": "fast"}, p.NodeSelector)
	assert.Equal(t, "high", p.PriorityClassName)
	assert.Equal(t, []corev1.Toleration{
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))}, {Operator: corev1.TolerationOpExists},
	}, p.Tolerations)
}

func TestPod_Devices(t *testing.T) {
	r := resources(runnerapi.Resources{Limits: runnerapi.ResourceAmounts{Memory: "1Gi"}, Devices: map[string]int32{"nvidia.com/gpu": 2}})
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		assert.Equal(t, "2", new(list["nvidia.com/gpu"]).String(), "Kubernetes refuses a request that is not the limit")
	}
	assert.Len(t, r.Requests, 3)
	assert.Len(t, r.Limits, 2)
}

func TestSizing_AppliedInTemplate(t *testing.T) {
	a := &v1alpha1.App{Spec: runnerapi.AppSpec{Image: "a", RightSizing: &runnerapi.RightSizing{Mode: runnerapi.SizingApply}}}
	a.Name = "web"
	requests := func() v1alpha1.AppliedSizing { return RequestsOf(podTemplate(a).Spec.Containers[0].Resources) }
	own := requests()
	a.Status.Sizing = &v1alpha1.SizingStatus{Applied: &v1alpha1.AppliedSizing{By: v1alpha1.ByRollout, CPU: 20, Memory: 40 << 20}}
	assert.Equal(t, v1alpha1.AppliedSizing{CPU: 20, Memory: 40 << 20}, requests())
	a.Status.Sizing.Applied.By = v1alpha1.ByResize
	assert.Equal(t, own, requests(), "what was done in place is not a reason for a rollout")
	a.Status.Sizing.Applied.By = v1alpha1.ByRollout
	a.Spec.RightSizing.Mode = runnerapi.SizingRecommend
	assert.Equal(t, own, requests(), "turned off, it is gone")
}

// TestPod_ServesUntilUnrouted: a pod to which visitors are led continues before SIGTERM, where its
// grace period has room for that.
func TestPod_ServesUntilUnrouted(t *testing.T) {
	visited := runnerapi.AppSpec{Image: "a", Ports: []runnerapi.Port{{Port: 80}}, Ingress: &runnerapi.Ingress{Public: true}}
	for name, c := range map[string]struct {
		change func(*runnerapi.AppSpec)
		want   int64
	}{
		"with an ingress":    {func(*runnerapi.AppSpec) {}, servingSeconds},
		"without":            {func(s *runnerapi.AppSpec) { s.Ingress = nil }, 0},
		"no time":            {func(s *runnerapi.AppSpec) { s.GraceSeconds = new(int64(servingSeconds)) }, 0},
		"enough time":        {func(s *runnerapi.AppSpec) { s.GraceSeconds = new(int64(servingSeconds + 1)) }, servingSeconds},
		"not there to serve": {func(s *runnerapi.AppSpec) { s.Type = runnerapi.TypeJob }, 0},
	} {
		spec := visited
		c.change(&spec)
		got := int64(0)
		if l := podTemplate(&v1alpha1.App{Spec: spec}).Spec.Containers[0].Lifecycle; l != nil {
			got = l.PreStop.Sleep.Seconds
		}
		assert.Equal(t, c.want, got, name)
	}
}

// TestPod_WithinBaseline makes the loosest pod that a spec can ask for: whatever a Runner sends, it
// gets no part of the node. For annotations see internal/policy/TestPolicy_AnnotationsByName.
func TestPod_WithinBaseline(t *testing.T) {
	loosest := runnerapi.Security{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), FSGroup: new(int64(0)),
		AllowRoot: true, AllowPrivilegeEscalation: true, AddCapabilities: []string{"SETUID"},
	}
	fields := reflect.TypeFor[runnerapi.Security]().NumField()
	assert.Equal(t, 7, fields, "a new field that loosens belongs into this test")
	a := &v1alpha1.App{Spec: runnerapi.AppSpec{
		Image: "a", Security: &loosest, ServiceAccount: &runnerapi.ServiceAccount{Name: "b", Token: true},
		Ports:          []runnerapi.Port{{Port: 80}},
		InitContainers: []runnerapi.InitContainer{{Name: "i"}},
		Volumes:        []runnerapi.Volume{{Name: "v", MountPath: "/v", ExistingClaim: "c"}, {Name: "e", MountPath: "/e", EmptyDir: &runnerapi.EmptyDir{}}},
	}}
	a.Name = "web"
	pod := podTemplate(a).Spec
	assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.Len(t, pod.Volumes, 2)
	for _, v := range pod.Volumes {
		assert.Nil(t, v.HostPath, v.Name)
	}
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	assert.Len(t, containers, 2)
	for _, c := range containers {
		assert.Nil(t, c.SecurityContext.Privileged, c.Name)
		assert.Nil(t, c.SecurityContext.SeccompProfile, "the pod's holds")
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		for _, p := range c.Ports {
			assert.Zero(t, p.HostPort)
		}
	}

	plain := podTemplate(&v1alpha1.App{Spec: runnerapi.AppSpec{Image: "a"}}).Spec
	assert.False(t, *plain.AutomountServiceAccountToken)
	assert.True(t, *plain.SecurityContext.RunAsNonRoot)
	assert.False(t, *plain.Containers[0].SecurityContext.AllowPrivilegeEscalation)
	assert.Empty(t, plain.Containers[0].SecurityContext.Capabilities.Add)
}

// TestCapabilities_OnlyBaseline compares the schema with what
// Kubernetes' baseline level lets through.
func TestCapabilities_OnlyBaseline(t *testing.T) {
	field, found := reflect.TypeFor[runnerapi.Security]().FieldByName("AddCapabilities")
	assert.True(t, found)
	// https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
	assert.Equal(t, "AUDIT_WRITE,CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,MKNOD,NET_BIND_SERVICE,SETFCAP,SETGID,SETPCAP,SETUID,SYS_CHROOT", field.Tag.Get("enum"))
}
