package build_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// lowering are fields that lower a pod's confinement; CONTAINER stands in each kind of containers.
var lowering = map[string]string{
	"root's":               `{"containers":[{"name":"a","image":"a"}]}`,
	"root as the user":     `{"securityContext":{"runAsNonRoot":true,"runAsUser":0},"containers":[{"name":"a","image":"a"}]}`,
	"the node's processes": `{"securityContext":{"runAsNonRoot":true},"hostPID":true,"containers":[{"name":"a","image":"a"}]}`,
	"the node's network":   `{"securityContext":{"runAsNonRoot":true},"hostNetwork":true,"containers":[{"name":"a","image":"a"}]}`,
	"the node's files":     `{"securityContext":{"runAsNonRoot":true},"volumes":[{"name":"v","hostPath":{"path":"/"}}],"containers":[{"name":"a","image":"a"}]}`,
	"sysctls":              `{"securityContext":{"runAsNonRoot":true,"sysctls":[{"name":"kernel.shm_rmid_forced","value":"1"}]},"containers":[{"name":"a","image":"a"}]}`,
	"a pod's SELinux type": `{"securityContext":{"runAsNonRoot":true,"seLinuxOptions":{"type":"spc_t"}},"containers":[{"name":"a","image":"a"}]}`,
	"a pod's SELinux user": `{"securityContext":{"runAsNonRoot":true,"seLinuxOptions":{"user":"system_u"}},"containers":[{"name":"a","image":"a"}]}`,
	"a pod's SELinux role": `{"securityContext":{"runAsNonRoot":true,"seLinuxOptions":{"role":"system_r"}},"containers":[{"name":"a","image":"a"}]}`,
	"others' processes":    `{"securityContext":{"runAsNonRoot":true},"shareProcessNamespace":true,"containers":[{"name":"a","image":"a"}]}`,
	"a host's port":        container(`"ports":[{"containerPort":80,"hostPort":80}]`),
	"an SELinux type":      container(`"securityContext":{"seLinuxOptions":{"type":"spc_t"}}`),
	"an SELinux user":      container(`"securityContext":{"seLinuxOptions":{"user":"system_u"}}`),
	"privileged":           container(`"securityContext":{"privileged":true}`),
	"a capability":         container(`"securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}`),
	"root":                 container(`"securityContext":{"runAsUser":0,"runAsNonRoot":false}`),
	"a host for a hook":    container(`"lifecycle":{"preStop":{"httpGet":{"host":"169.254.169.254","port":80}}}`),
	"a host for a probe":   container(`"livenessProbe":{"tcpSocket":{"host":"10.0.0.1","port":22}}`),
	"a host for a start":   container(`"startupProbe":{"httpGet":{"host":"10.0.0.1","port":22}}`),
	"the node's /proc":     `{"hostUsers":false,"securityContext":{"runAsNonRoot":true},"containers":[{"name":"a","image":"a","securityContext":{"procMount":"Unmasked"}}]}`,
}

func container(fields string) string {
	return `{"name":"a","image":"a",` + fields + `}`
}

// pods are a lowering as it can stand in a pod: as it is, or as a container of each kind.
func pods(text string) []string {
	if !strings.HasPrefix(text, `{"name"`) {
		return []string{text}
	}
	sidecar := strings.TrimSuffix(text, "}") + `,"restartPolicy":"Always"}` // only those may have probes and hooks
	return []string{
		`{"securityContext":{"runAsNonRoot":true},"containers":[` + text + `]}`,
		`{"securityContext":{"runAsNonRoot":true},"initContainers":[` + sidecar + `],"containers":[{"name":"b","image":"b"}]}`,
	}
}

// bench is an API server with the manifest for builds, and nothing that makes pods of Jobs, or
// that would end a namespace.
func bench(t *testing.T) *kubetest.Env {
	t.Helper()
	env := kubetest.ControlPlane(t)
	_, err := env.Cluster.KubectlWith(t.Context(), string(deployments.BuildRights()), "apply", "-f", "-")
	require.NoError(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "default"}}
	require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), account)))
	return env
}

// try has the API server admit a pod, and make none.
func try(env *kubetest.Env, spec string) error {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"` + builds + `","name":"tried"},"spec":` + spec + `}`
	_, err := env.Cluster.KubectlWith(context.Background(), pod, "create", "--dry-run=server", "-f", "-")
	return err
}

// TestBuild_PodsConfined uses the namespace's admission policy: its pod security level admits
// everything. It admits a build's own pod.
func TestBuild_PodsConfined(t *testing.T) {
	env := bench(t)
	await.Until(t, "the policy to be in force", func() bool {
		err := try(env, lowering["root's"])
		return err != nil && strings.Contains(err.Error(), "in a namespace for builds")
	})
	for name, text := range lowering {
		for _, pod := range pods(text) {
			require.ErrorContains(t, try(env, pod), "in a namespace for builds", "%s: %s", name, pod)
		}
	}

	debugged(t, env)

	builder := tool(t, env)
	key := runnerapi.Key{Namespace: builds, Name: "web"}
	_, err := builder.Run(t.Context(), key, spec("ca"), byTest)
	require.NoError(t, err)
	var jobs batchv1.JobList
	require.NoError(t, env.Client.List(t.Context(), &jobs, client.InNamespace(builds), client.MatchingLabels{"pipeops.io/build": "web"}))
	require.Len(t, jobs.Items, 1)
	pod := jobs.Items[0].Spec.Template.Spec
	text, err := json.Marshal(pod)
	require.NoError(t, err)
	require.NoError(t, try(env, string(text)))
	confidential(t, pod)
}

// TestBuild_IgnoresJobsOfOthers has a Job with a build's labels that a CronJob made.
func TestBuild_IgnoresJobsOfOthers(t *testing.T) {
	env := bench(t)
	builder := tool(t, env)
	key := runnerapi.Key{Namespace: builds, Name: "taken"}
	labels := objectmeta.Labels()
	labels["pipeops.io/build"] = key.Name
	runs := batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}},
	}}}
	owner := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "build-taken"},
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: runs}},
	}
	require.NoError(t, env.Client.Create(t.Context(), owner))
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "build-taken-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("CronJob")),
		}},
		Spec: runs,
	}
	require.NoError(t, env.Client.Create(t.Context(), job))
	_, err := builder.Get(t.Context(), key)
	require.Equal(t, problem.NotFound, problemtest.Of(t, err).Code)
	_, err = builder.Run(t.Context(), key, spec("ca"), byTest)
	require.NoError(t, err, "no run is in progress")
	b, err := builder.Get(t.Context(), key)
	require.NoError(t, err)
	assert.Empty(t, b.Before)
	require.NoError(t, builder.Delete(t.Context(), key, byTest))
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(job), job), "it stays")
}

// debugged has containers put into a pod that runs. Such a container has neither ports nor probes.
func debugged(t *testing.T, env *kubetest.Env) {
	t.Helper()
	nonRoot := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "debugged"}, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &nonRoot}, Containers: []corev1.Container{{Name: "b", Image: "b"}},
	}}
	require.NoError(t, env.Client.Create(t.Context(), pod))
	t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0))) })
	debug := func(container string) error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ephemeralContainers":[`+container+`]}}`))
		return env.Client.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), patch, client.DryRunAll)
	}
	require.NoError(t, debug(`{"name":"a","image":"a","terminationMessagePolicy":"File"}`), "a confined one is let in")
	tried := 0
	for name, text := range lowering {
		if !strings.HasPrefix(text, `{"name":"a","image":"a","securityContext"`) {
			continue
		}
		tried++
		require.ErrorContains(t, debug(text), "in a namespace for builds", name)
	}
	assert.NotZero(t, tried)
}

func spec(ca string) runnerapi.BuildSpec {
	return runnerapi.BuildSpec{
		Git: runnerapi.BuildGit{URL: "https://git.example.com/shop/web.git", Credentials: "git"},
		BuildTemplate: runnerapi.BuildTemplate{
			Image: "registry.example.com/shop/web", PushCredentials: "registry", CA: &runnerapi.BuildCA{Secret: ca},
		},
	}
}

// tool makes the Secrets of spec, and a Client with the agent's rights.
func tool(t *testing.T, env *kubetest.Env) *build.Client {
	t.Helper()
	certificate := newCA(t, "127.0.0.1").pem
	for name, data := range map[string]map[string]string{
		"git":      {"url": "https://git.example.com/shop", "username": user, "password": password},
		"registry": {corev1.DockerConfigJsonKey: `{"auths":{"registry.example.com":{"auth":"eDp5"}}}`},
		"ca":       {"ca.crt": certificate + certificate, "password": password},
		"no-ca":    {"password": password},
		"half-ca":  {"ca.crt": certificate + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"},
		"noted-ca": {"ca.crt": password + "\n" + certificate},
	} {
		kind := corev1.SecretTypeOpaque
		if name == "registry" {
			kind = corev1.SecretTypeDockerConfigJson
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: name}, Type: kind, StringData: data}
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), s)))
	}
	c, err := build.New(env.Agent, build.Options{
		Namespace: kubetest.AgentNamespace, Image: builderImage, ToolsImage: "pipeops/agent:v1", Guard: egress.Guard{Hosts: egress.EveryHost}, Policy: anySigner{},
	})
	require.NoError(t, err)
	return c
}

// confidential has a look at what the builder can read and write: no Secret but certificates,
// and not the commit that names the tag.
func confidential(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	require.Equal(t, "build", pod.InitContainers[1].Name)
	for _, m := range pod.InitContainers[1].VolumeMounts {
		assert.NotEqual(t, "commit", m.Name)
		if s := volumes[m.Name].Secret; s != nil {
			assert.Equal(t, []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}, s.Items, m.Name)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		assert.True(t, m.Name != "commit" || m.ReadOnly)
	}
}

// The steps of a Dockerfile can read what is mounted.
func TestBuild_RefusesMixedSecret(t *testing.T) {
	env := bench(t)
	builder := tool(t, env)
	for _, name := range []string{"no-ca", "half-ca", "noted-ca", "git"} {
		_, err := builder.Run(t.Context(), runnerapi.Key{Namespace: builds, Name: "refused"}, spec(name), byTest)
		refused := &problem.Error{}
		require.ErrorAs(t, err, &refused, name)
		assert.Equal(t, "ca.secret", refused.Field)
		assert.Contains(t, refused.Detail, "has no key ca.crt with certificates alone")
		assert.NotContains(t, refused.Error(), password)
	}
}
