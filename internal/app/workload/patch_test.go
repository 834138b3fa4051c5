package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// withPatches returns an App named web with these patches, in YAML.
func withPatches(t *testing.T, spec runnerapi.AppSpec, patches ...string) *v1alpha1.App {
	t.Helper()
	a := &v1alpha1.App{Spec: spec}
	a.Name, a.Namespace, a.UID = "web", "shop", "u"
	for _, text := range patches {
		var p runnerapi.Patch
		require.NoError(t, decode.Text.YAML([]byte(text), &p), text)
		a.Spec.Patches = append(a.Spec.Patches, p)
	}
	return a
}

func inPod(fields string) string { return "patch: {spec: {template: {spec: {" + fields + "}}}}" }

var served = runnerapi.AppSpec{
	Image: "example.com/web:1", Replicas: new(int32(2)), Ports: []runnerapi.Port{{Port: 80}}, Env: []runnerapi.EnvVar{{Name: "A", Value: "1"}},
	Volumes:        []runnerapi.Volume{{Name: "data", MountPath: "/data", EmptyDir: &runnerapi.EmptyDir{}}},
	InitContainers: []runnerapi.InitContainer{{Name: "migrate"}},
	Tolerations:    []runnerapi.Toleration{{Key: "gpu"}},
	Resources:      runnerapi.Resources{Devices: map[string]int32{"example.com/fpga": 1}},
	Autoscaling:    &runnerapi.Autoscaling{Min: 1, Max: 3},
}

func TestPatch_StrategicMerge(t *testing.T) {
	a := withPatches(t, served,
		inPod("hostAliases: [{ip: 10.0.0.1, hostnames: [db]}], runtimeClassName: gvisor, imagePullSecrets: [{name: pull}]"),
		inPod("initContainers: [{name: proxy, image: 'example.com/proxy:1', restartPolicy: Always, resources: {limits: {memory: 32Mi}}}]"),
		inPod("containers: [{name: web, tty: true, env: [{name: B, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], resources: {limits: {ephemeral-storage: 1Gi}}}, {name: logs, image: 'example.com/logs:1'}]"),
		inPod("topologySpreadConstraints: [{$patch: replace}], tolerations: [{key: spot, operator: Exists}]"),
		"patch: {metadata: {labels: {team: shop}}, spec: {template: {metadata: {annotations: {example.com/a: b}}}}}",
		"{target: {kind: Service}, patch: {spec: {sessionAffinity: ClientIP, ports: [{name: logs, port: 9000}]}}}",
		"{target: {kind: HorizontalPodAutoscaler}, patch: {spec: {behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}}}",
	)
	all, err := Children(a)
	require.NoError(t, err)
	d := all[0].(*appsv1.Deployment)
	pod := d.Spec.Template.Spec
	assert.Equal(t, "shop", d.Labels["team"])
	assert.Equal(t, "b", d.Spec.Template.Annotations["example.com/a"])
	assert.Equal(t, []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"db"}}}, pod.HostAliases)
	assert.Equal(t, "gvisor", *pod.RuntimeClassName)
	assert.Empty(t, pod.TopologySpreadConstraints)
	assert.Equal(t, "spot", pod.Tolerations[0].Key)
	containers := map[string]corev1.Container{}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		containers[c.Name] = c
	}
	require.Len(t, containers, 4)
	assert.Equal(t, "web", pod.Containers[0].Name, "kubectl's default")
	own := containers["web"]
	assert.Equal(t, "example.com/web:1", own.Image)
	assert.True(t, own.TTY)
	assert.Len(t, own.Env, 2)
	assert.Equal(t, "1Gi", own.Resources.Limits.StorageEphemeral().String())
	for _, name := range []string{"proxy", "logs"} {
		c := containers[name]
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		assert.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, c.TerminationMessagePolicy)
		assert.Equal(t, "50m", c.Resources.Requests.Cpu().String(), "an autoscaler needs it")
	}
	assert.Equal(t, "32Mi", new(containers["proxy"].Resources.Requests).Memory().String(), "not more than the limit")
	service := all[1].(*corev1.Service)
	assert.Equal(t, corev1.ServiceAffinityClientIP, service.Spec.SessionAffinity)
	assert.Len(t, service.Spec.Ports, 2)

	a.Spec.Autoscaling = nil
	all, err = Children(a)
	require.NoError(t, err, "scale turns autoscaling off")
	assert.Len(t, all, 2)
}

func TestPatch_OfRuns(t *testing.T) {
	sidecar := "initContainers: [{name: proxy, image: p, restartPolicy: Always}]"
	job, err := Job(withPatches(t, runnerapi.AppSpec{Type: runnerapi.TypeJob, Image: "a"}, inPod(sidecar)))
	require.NoError(t, err)
	assert.Len(t, job.Spec.Template.Spec.InitContainers, 1)
	cron := "patch: {spec: {jobTemplate: {spec: {template: {spec: {" + sidecar + "}}}}}}"
	o, err := Of(withPatches(t, runnerapi.AppSpec{Type: runnerapi.TypeCronJob, Image: "a", Schedule: &runnerapi.Schedule{Cron: "@daily"}}, cron))
	require.NoError(t, err)
	assert.Len(t, o.(*batchv1.CronJob).Spec.JobTemplate.Spec.Template.Spec.InitContainers, 1)
	pipeline := withPatches(t, runnerapi.AppSpec{Type: runnerapi.TypePipeline, Image: "a", Jobs: []runnerapi.PipelineJob{{Name: "b"}, {Name: "c"}}}, inPod(sidecar))
	all, err := Children(pipeline)
	require.NoError(t, err)
	for _, o := range all {
		assert.Len(t, TemplateOf(o).Spec.InitContainers, 1, o.GetName())
	}
}

func TestReferences_OfPatches(t *testing.T) {
	a := withPatches(t, runnerapi.AppSpec{Image: "a", RestartOn: []runnerapi.RestartTrigger{runnerapi.RestartOnSecrets}},
		inPod("containers: [{name: logs, image: l, envFrom: [{secretRef: {name: token}}]}]"))
	assert.Equal(t, []Reference{{runnerapi.RestartOnSecrets, "token"}}, References(a))
}

// TestPatch_Refused expects the field at fault, and words that say why.
func TestPatch_Refused(t *testing.T) {
	for text, want := range map[string][2]string{
		// What it is not.
		inPod("hostAlias: []"):                                         {"patch.spec.template.spec.hostAlias", "did you mean hostAliases"},
		inPod("hostAliases: db"):                                       {"patch.spec.template.spec.hostAliases", "has to be a list"},
		inPod("containers: [{name: web, $patch: purge}]"):              {"patch", "strategic merge"},
		inPod("containers: [{image: b}]"):                              {"patch", "strategic merge"},
		"patch: {status: {replicas: 1}}":                               {"patch.status", "metadata and spec"},
		"patch: {kind: Pod, spec: {}}":                                 {"patch.kind", "metadata and spec"},
		"{target: {kind: StatefulSet}, patch: {spec: {}}}":             {"target.kind", "becomes no StatefulSet"},
		"{target: {kind: Service}, patch: {spec: {externalIPs: [a]}}}": {"patch", "CVE-2020-8554"},

		// What the App and the agent say.
		"patch: {metadata: {name: other}}":                                                {"patch.metadata.name", "the agent sets it"},
		"patch: {metadata: {finalizers: [a/b]}}":                                          {"patch.metadata.finalizers", "the agent sets it"},
		"patch: {metadata: {ownerReferences: [{$patch: replace}]}}":                       {"patch.metadata.ownerReferences", "the agent sets it"},
		"patch: {metadata: {labels: {pipeops.io/app: null}}}":                             {"patch.metadata.labels", "the agent sets it"},
		"patch: {metadata: {annotations: {pipeops.io/applied: a}}}":                       {"patch", "a mark of the agent's"},
		"patch: {spec: {template: {metadata: {labels: {pipeops.io/b: c}}}}}":              {"patch", "a mark of the agent's"},
		"patch: {spec: {template: {metadata: {labels: {$patch: replace}}}}}":              {"patch.spec.template.metadata.labels", "the agent sets it"},
		"patch: {spec: {selector: {matchLabels: {a: b}}}}":                                {"patch.spec.selector", "the agent sets it"},
		"patch: {spec: {replicas: 9}}":                                                    {"patch.spec.replicas", "field replicas"},
		"patch: {spec: {replicas: null}}":                                                 {"patch.spec.replicas", "field replicas"},
		"patch: {spec: {paused: true}}":                                                   {"patch.spec.paused", "field paused"},
		"patch: {spec: {strategy: {type: Recreate, rollingUpdate: null}}}":                {"patch.spec.strategy", "field update"},
		inPod("containers: [{name: web, image: b}]"):                                      {"patch.spec.template.spec.containers[0].image", "field image"},
		inPod("containers: [{name: web, args: [b]}]"):                                     {"patch.spec.template.spec.containers[0].args", "field args"},
		inPod("containers: [{name: a, image: b}, {name: web, $patch: delete}]"):           {"patch.spec.template.spec.containers[1]", "field image"},
		inPod("containers: [{$patch: replace}, {name: a, image: b}]"):                     {"patch.spec.template.spec.containers", "field image"},
		inPod("containers: [{name: web, env: [{name: A, value: '2'}]}]"):                  {"patch.spec.template.spec.containers[0].env", "field env"},
		inPod("containers: [{name: web, resources: {requests: {cpu: 2}}}]"):               {"patch.spec.template.spec.containers[0].resources.requests.cpu", "field resources"},
		inPod("containers: [{name: web, resources: {limits: {example.com/fpga: 2}}}]"):    {"patch.spec.template.spec.containers[0].resources.limits", "field resources"},
		inPod("initContainers: [{name: migrate, image: b}]"):                              {"patch.spec.template.spec.initContainers[0].image", "field initContainers"},
		inPod("volumes: [{name: data, $patch: delete}]"):                                  {"patch.spec.template.spec.volumes", "field volumes"},
		inPod("serviceAccountName: admin"):                                                {"patch.spec.template.spec.serviceAccountName", "field serviceAccount.name"},
		inPod("serviceAccount: admin"):                                                    {"patch.spec.template.spec.serviceAccount", "field serviceAccount.name"},
		inPod("automountServiceAccountToken: true"):                                       {"patch.spec.template.spec.automountServiceAccountToken", "field serviceAccount.token"},
		"{target: {kind: Service}, patch: {spec: {selector: {a: b}}}}":                    {"patch.spec.selector", "the agent sets it"},
		"{target: {kind: Service}, patch: {spec: {ports: [{port: 80, $patch: delete}]}}}": {"patch.spec.ports", "field ports"},
		"{target: {kind: HorizontalPodAutoscaler}, patch: {spec: {maxReplicas: 99}}}":     {"patch.spec.maxReplicas", "field autoscaling.max"},

		// What makes pods less confined.
		inPod("hostNetwork: true"):                                                                                               {"patch", "host namespaces"},
		inPod("volumes: [{name: h, hostPath: {path: /}}]"):                                                                       {"patch", "hostPath"},
		inPod("containers: [{name: web, securityContext: {privileged: true}}]"):                                                  {"patch", "privileged"},
		inPod("containers: [{name: a, image: b, ports: [{containerPort: 1, hostPort: 1}]}]"):                                     {"patch", "hostPort"},
		inPod("containers: [{name: a, image: b, securityContext: {capabilities: {drop: [ALL], add: [SETUID]}}}]"):                {"patch", "capabilities"},
		inPod("containers: [{name: a, image: b, securityContext: {runAsNonRoot: false}}]"):                                       {"patch", "runAsNonRoot"},
		inPod("securityContext: {seccompProfile: {type: Unconfined}}"):                                                           {"patch", "seccompProfile"},
		inPod("securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}"):                                                 {"patch", "sysctls"},
		inPod("containers: [{name: web, securityContext: {allowPrivilegeEscalation: null}}]"):                                    {"patch", "allowPrivilegeEscalation"},
		"patch: {spec: {template: {metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/web: unconfined}}}}}": {"patch", "AppArmor"},
	} {
		_, err := Children(withPatches(t, served, "patch: {spec: {minReadySeconds: 5}}", text))
		p := problemtest.Of(t, err, text)
		assert.Equal(t, "patches[1]."+want[0], p.Field, text)
		assert.Contains(t, p.Detail, want[1], text)
		assert.NotEmpty(t, p.Fix, text)
	}
}

// TestPatch_LoosenedBySpec: what security allows the App, a patch may use, and no more.
func TestPatch_LoosenedBySpec(t *testing.T) {
	spec := runnerapi.AppSpec{Image: "a", Security: &runnerapi.Security{AllowRoot: true, AddCapabilities: []string{"SETUID"}}}
	root := inPod("containers: [{name: b, image: c, securityContext: {runAsNonRoot: false, capabilities: {drop: [ALL], add: [CHOWN]}}}]")
	_, err := Children(withPatches(t, spec, root))
	require.NoError(t, err)
	_, err = Children(withPatches(t, spec, inPod("containers: [{name: b, image: c, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]")))
	assert.Contains(t, problemtest.Of(t, err, "beyond baseline").Detail, "SYS_ADMIN")
}

// FuzzPatch: whatever a patch is, it is refused with its field, or leaves the App's own fields as
// they are.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec":{"template":{"spec":{"hostAliases":[{"ip":"10.0.0.1"}]}}}}`, `{"$patch":"delete"}`, `{"$patch":"replace","spec":{}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","$patch":"delete"}]}}}}`, `{"spec":null}`, `{"metadata":{"$retainKeys":["name"]}}`,
		`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"}],"containers":[{"name":"a","image":"b"}]}}}}`,
		`{"spec":{"template":{"spec":{"$deleteFromPrimitiveList/x":[1],"containers":[{"$patch":"replace"},{"name":"web"}]}}}}`,
		`{"spec":{"template":{"spec":{"containers":[[],null,{"name":{}}]}}}}`, `{"spec":{"$retainKeys":["paused"],"paused":true}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var patch map[string]any
		if len(text) > 4<<10 || decode.Text.JSON(text, &patch) != nil {
			return
		}
		a := withPatches(t, served)
		bare, err := Of(a)
		require.NoError(t, err)
		a.Spec.Patches = []runnerapi.Patch{{Patch: patch}}
		raw, err := json.Marshal(patch)
		require.NoError(t, err)
		o, err := Of(a)
		if err != nil {
			assert.Contains(t, problemtest.Of(t, err, string(raw)).Field, "patches[0].")
			return
		}
		was, is := bare.(*appsv1.Deployment), o.(*appsv1.Deployment)
		require.Equal(t, was.Name, is.Name)
		require.Equal(t, was.OwnerReferences, is.OwnerReferences)
		require.Equal(t, was.Spec.Selector, is.Spec.Selector)
		require.Equal(t, was.Spec.Replicas, is.Spec.Replicas)
		require.Subset(t, is.Spec.Template.Labels, was.Spec.Template.Labels)
		images := map[string]string{}
		for _, c := range is.Spec.Template.Spec.Containers {
			images[c.Name] = c.Image
			require.False(t, c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged)
		}
		require.Equal(t, "example.com/web:1", images["web"])
		require.Equal(t, was.Spec.Template.Spec.ServiceAccountName, is.Spec.Template.Spec.ServiceAccountName)
	})
}

// TestPatch_OfEachType: what the agent itself sets in any type of workload is no mark that the
// patch has set.
func TestPatch_OfEachType(t *testing.T) {
	aliases := map[string]any{"spec": map[string]any{"hostAliases": []any{map[string]any{"ip": "10.0.0.1", "hostnames": []any{"db"}}}}}
	for _, s := range []runnerapi.AppSpec{
		{Type: runnerapi.TypeDeployment},
		{Type: runnerapi.TypeStatefulSet, Volumes: []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi"}}}},
		{Type: runnerapi.TypeDaemonSet},
		{Type: runnerapi.TypeJob},
		{Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "* * * * *"}},
		{Type: runnerapi.TypePipeline, Jobs: []runnerapi.PipelineJob{{Name: "first"}, {Name: "second"}}},
	} {
		s.Image = "example.com/web:1"
		patch := map[string]any{"spec": map[string]any{"template": aliases}}
		if s.Type == runnerapi.TypeCronJob {
			patch = map[string]any{"spec": map[string]any{"jobTemplate": patch}}
		}
		s.Patches = []runnerapi.Patch{{Patch: patch}}
		_, err := Children(withPatches(t, s))
		assert.NoError(t, err, s.Type)
	}
}
