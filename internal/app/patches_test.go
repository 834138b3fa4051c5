package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

func patches(t *testing.T, texts ...string) (all []runnerapi.Patch) {
	t.Helper()
	for _, text := range texts {
		var p runnerapi.Patch
		require.NoError(t, decode.Text.YAML([]byte(text), &p), text)
		all = append(all, p)
	}
	return all
}

func podPatch(fields string) string { return "patch: {spec: {template: {spec: {" + fields + "}}}}" }

// TestPatches_ArriveAndLeave: what a patch brought is the agent's to take away again.
func TestPatches_ArriveAndLeave(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	spec := web()
	spec.Patches = patches(t,
		podPatch("hostAliases: [{ip: 10.0.0.1, hostnames: [db]}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}"),
		podPatch("initContainers: [{name: proxy, image: 'example.com/proxy:1', restartPolicy: Always}], containers: [{name: web, resources: {limits: {ephemeral-storage: 1Gi}}}]"),
		"{target: {kind: Service}, patch: {spec: {sessionAffinity: ClientIP}}}",
	)
	a := deploy(t, e, k, spec)
	assert.Equal(t, spec.Patches[0].Patch["spec"], a.Spec.Patches[0].Patch["spec"])
	d := &appsv1.Deployment{}
	eventually(t, "the deployment exists", func() bool { return exists(t, env, k, d) })
	pod := d.Spec.Template.Spec
	assert.Equal(t, []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"db"}}}, pod.HostAliases)
	require.NotNil(t, pod.Affinity)
	require.Len(t, pod.InitContainers, 1)
	assert.Equal(t, corev1.ContainerRestartPolicyAlways, *pod.InitContainers[0].RestartPolicy)
	assert.Equal(t, "1Gi", pod.Containers[0].Resources.Limits.StorageEphemeral().String())
	service := &corev1.Service{}
	eventually(t, "the service exists", func() bool { return exists(t, env, k, service) })
	assert.Equal(t, corev1.ServiceAffinityClientIP, service.Spec.SessionAffinity)

	again := deploy(t, e, k, spec)
	assert.Equal(t, a.Generation, again.Generation, "the same patches are no change")
	revisions, err := e.Revisions(t.Context(), k)
	require.NoError(t, err)
	require.Len(t, revisions, 1)

	spec.Patches = nil
	deploy(t, e, k, spec)
	eventually(t, "the patches are taken back", func() bool {
		pod := get(t, env, k, &appsv1.Deployment{}).Spec.Template.Spec
		return len(pod.HostAliases)+len(pod.InitContainers) == 0 && pod.Affinity == nil && pod.Containers[0].Resources.Limits == nil &&
			get(t, env, k, &corev1.Service{}).Spec.SessionAffinity == corev1.ServiceAffinityNone
	})
}

// TestPatches_RefusedBeforeAnythingIsWritten: by the agent, or by the API server in a dry run.
func TestPatches_RefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	for text, want := range map[string][2]string{
		podPatch("hostAliases: [{ip: 10.0.0.1, hostname: [db]}]"):                                      {"patches[0].patch.spec.template.spec.hostAliases[0].hostname", "did you mean hostnames"},
		podPatch("containers: [{name: web, securityContext: {privileged: true}}]"):                     {"patches[0].patch", "privileged"},
		podPatch("volumes: [{name: node, hostPath: {path: /}}]"):                                       {"patches[0].patch", "hostPath"},
		podPatch("containers: [{name: a, image: b, ports: [{containerPort: 80, hostPort: 80}]}]"):      {"patches[0].patch", "hostPort"},
		podPatch("serviceAccountName: admin"):                                                          {"patches[0].patch.spec.template.spec.serviceAccountName", "serviceAccount.name"},
		podPatch("automountServiceAccountToken: true"):                                                 {"patches[0].patch.spec.template.spec.automountServiceAccountToken", "serviceAccount.token"},
		podPatch("hostAliases: [{ip: db, hostnames: [db]}]"):                                           {"patches", "spec.template.spec.hostAliases[0].ip"},
		podPatch("containers: [{name: web, ports: [{name: much-too-long-a-name, containerPort: 1}]}]"): {"patches", "ports[0].name"},
	} {
		spec := web()
		spec.Patches = patches(t, text)
		_, err := e.Deploy(t.Context(), k, spec, byTest)
		p := problemtest.Of(t, err, text)
		assert.Equal(t, problem.Invalid, p.Code, text)
		assert.Equal(t, want[0], p.Field, text)
		assert.Contains(t, p.Detail, want[1], text)
		assert.False(t, exists(t, env, k, &v1alpha1.App{}), text)
	}
}

// TestPatches_OfKubectl: no API has checked an App that was written with kubectl.
func TestPatches_OfKubectl(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	a := &v1alpha1.App{Spec: web()}
	a.Namespace, a.Name = k.Namespace, k.Name
	a.Spec.Patches = patches(t, podPatch("hostPID: true"))
	require.NoError(t, env.Client.Create(t.Context(), a))
	eventually(t, "the App is refused", func() bool {
		now, err := e.Get(t.Context(), k)
		return err == nil && now.Status.Diagnosis != nil && now.Status.Diagnosis.Cause == runnerapi.CauseInvalidSpec
	})
	now, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Contains(t, now.Status.Diagnosis.Message, "patches[0].patch: would make the pods less confined: host namespaces")
	assert.False(t, exists(t, env, k, &appsv1.Deployment{}))
}
