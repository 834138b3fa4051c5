package helm_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestHelmRelease_Lifecycle(t *testing.T) {
	env, r := releases(t, "life")
	dry := byTest
	dry.DryRun = true

	would, err := r.Deploy(t.Context(), key("life"), of(guide(t), nil), dry)
	require.NoError(t, err)
	assert.Equal(t, []runnerapi.ReleaseObject{{APIVersion: "v1", Kind: "Service", Name: "life", Change: "create"}}, would.Objects)
	_, err = r.Get(t.Context(), key("life"))
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)

	first := deploy(t, r, "life", of(guide(t), map[string]any{"greeting": "hello", "second": true}))
	assert.Equal(t, runnerapi.ReleaseDeployed, first.Status)
	assert.Equal(t, 1, first.Revision)
	assert.True(t, first.Managed)
	s, err := service(t, env, "life")
	require.NoError(t, err)
	assert.Equal(t, "hello", s.Annotations["greeting"])

	would, err = r.Deploy(t.Context(), key("life"), of(guide(t), map[string]any{"greeting": "hello"}), dry)
	require.NoError(t, err)
	assert.Equal(t, []runnerapi.ReleaseObject{
		{APIVersion: "v1", Kind: "Service", Name: "life", Change: "none"},
		{APIVersion: "v1", Kind: "Service", Name: "life-second", Change: "delete"},
	}, would.Objects)
	second := deploy(t, r, "life", of(guide(t), map[string]any{"greeting": "good day"}))
	assert.Equal(t, 2, second.Revision)
	_, err = service(t, env, "life-second")
	assert.True(t, apierrors.IsNotFound(err), "what left the chart is gone: %v", err)

	earlier := byTest
	earlier.Revision = first.Revision
	_, err = r.Deploy(t.Context(), key("life"), of(guide(t), map[string]any{"greeting": "lost"}), earlier)
	assert.Equal(t, runnerapi.CodeChanged, problemOf(t, err).Code)
	_, err = r.Deploy(t.Context(), key("none"), of(guide(t), nil), earlier)
	assert.Contains(t, problemOf(t, err).Detail, "is not there any more")
	s, err = service(t, env, "life")
	require.NoError(t, err)
	assert.Equal(t, "good day", s.Annotations["greeting"], "a spec that was made from an earlier revision changes nothing")

	_, err = r.Rollback(t.Context(), key("life"), runnerapi.ReleaseRollback{Revision: 7}, byTest)
	assert.Equal(t, "revision", problemOf(t, err).Field)
	would, err = r.Rollback(t.Context(), key("life"), runnerapi.ReleaseRollback{}, dry)
	require.NoError(t, err)
	assert.Empty(t, would.Objects, "nothing leaves it")
	_, err = r.Rollback(t.Context(), key("life"), runnerapi.ReleaseRollback{}, byTest)
	require.NoError(t, err)
	third := outcome(t, r, "life")
	assert.Equal(t, 3, third.Revision)
	s, err = service(t, env, "life")
	require.NoError(t, err)
	assert.Equal(t, "hello", s.Annotations["greeting"])
	_, err = service(t, env, "life-second")
	require.NoError(t, err)

	history, err := r.History(t.Context(), key("life"))
	require.NoError(t, err)
	require.Len(t, history, 3)
	assert.Equal(t, []runnerapi.ReleaseStatus{runnerapi.ReleaseDeployed, runnerapi.ReleaseSuperseded, runnerapi.ReleaseSuperseded},
		[]runnerapi.ReleaseStatus{history[0].Status, history[1].Status, history[2].Status})
	list, err := r.List(t.Context(), production)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, 3, list[0].Revision)

	_, err = r.Delete(t.Context(), key("life"), byTest)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := r.Get(t.Context(), key("life"))
		return err != nil
	}, patience, 20*time.Millisecond)
	_, err = service(t, env, "life")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Empty(t, revisions(t, env, "life"))
	_, err = r.Delete(t.Context(), key("life"), byTest)
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
}

func TestHelmRelease_OnlyManagedNamespaces(t *testing.T) {
	_, r := releases(t)
	for _, ns := range []string{"kube-system", kubetest.AgentNamespace, "default", "nowhere"} {
		_, err := r.Deploy(t.Context(), runnerapi.Key{Namespace: ns, Name: "x"}, of(guide(t), nil), byTest)
		assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code, ns)
	}
}

func TestHelmRelease_OneCommandAtATime(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r, other := start(t, env.Agent), start(t, env.Agent, func(o *helm.Options) { o.Replica = "agent-2" })
	remove(t, env, "busy")
	spec := of(slow(t), nil)
	release, err := r.Deploy(t.Context(), key("busy"), spec, byTest)
	require.NoError(t, err)
	require.True(t, release.Busy())
	assert.Equal(t, runnerapi.ReleasePendingInstall, release.Status)
	for _, replica := range []*helm.Releases{r, other} {
		_, err = replica.Deploy(t.Context(), key("busy"), of(guide(t), nil), byTest)
		p := problemOf(t, err)
		assert.Equal(t, problem.Busy, p.Code)
		assert.Contains(t, p.Detail, "put-release of Runner tester is at work on release busy since")
	}
	require.Eventually(t, func() bool { // the other replica hears how far it is
		seen, err := other.Get(t.Context(), key("busy"))
		return err == nil && seen.Busy() && seen.Operation.Progress == "waiting for Deployment busy to become ready (1 of 1)"
	}, patience, 50*time.Millisecond)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "busy"}}
	paused := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))
	require.NoError(t, env.Client.Patch(t.Context(), d, paused), "Helm does not wait for one that is paused")
	assert.Equal(t, runnerapi.ReleaseDeployed, outcome(t, r, "busy").Status)
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, other, "busy", of(guide(t), nil)).Status)

	remove(t, env, "late")
	spec.Timeout = "1s"
	failed := deploy(t, r, "late", spec)
	assert.Equal(t, runnerapi.ReleaseFailed, failed.Status)
	assert.Contains(t, failed.Description, "Deployment late did not become ready within 1s")
}

func TestHelmRelease_FailsWhenAgentStops(t *testing.T) {
	env := kubetest.ControlPlane(t)
	remove(t, env, "stopped")
	r := helm.New(env.Agent, helm.Options{Namespace: kubetest.AgentNamespace, Replica: "agent-1"})
	stop := await.Background(t, "the agent's releases", r.Run)
	_, err := r.Deploy(t.Context(), key("stopped"), of(slow(t), nil), byTest)
	require.NoError(t, err)
	stop()
	next := start(t, env.Agent)
	release, err := next.Get(t.Context(), key("stopped"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseFailed, release.Status)
	assert.False(t, release.Busy())
	assert.Contains(t, release.Description, "the agent stops")
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, next, "stopped", of(guide(t), nil)).Status)
}

// victimKubeconfig has the test's program be an agent that is about to be killed.
const victimKubeconfig = "PIPEOPS_TEST_VICTIM"

// beKilled installs or upgrades a release that waits for ever, and never comes back.
func beKilled(kubeconfig string) int {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 1
	}
	r := helm.New(config, helm.Options{Namespace: kubetest.AgentNamespace, Replica: os.Getenv("REPLICA")})
	spec := of(slow(&testing.B{}), nil)
	if os.Getenv("DELETE") != "" {
		_, err = r.Delete(context.Background(), key(os.Getenv("RELEASE")), byTest)
	} else {
		_, err = r.Deploy(context.Background(), key(os.Getenv("RELEASE")), spec, byTest)
	}
	if err != nil {
		return 1
	}
	select {}
}

// kill has a process begin a command on a release and kills it in the middle.
func kill(t *testing.T, env *kubetest.Env, release, replica string, status runnerapi.ReleaseStatus) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), victimKubeconfig+"="+env.Cluster.Kubeconfig(), "RELEASE="+release, "REPLICA="+replica)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		for _, s := range revisions(t, env, release) {
			if s.Labels["status"] == string(status) {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
}

// TestHelmRelease_RecoversFromKill kills an agent in the middle of an installation and of an
// upgrade.
func TestHelmRelease_RecoversFromKill(t *testing.T) {
	env := kubetest.ControlPlane(t)
	remove(t, env, "killed")
	kill(t, env, "killed", "agent-1", runnerapi.ReleasePendingInstall)
	r := start(t, env.Agent) // the same pod, with a new process
	release, err := r.Get(t.Context(), key("killed"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseFailed, release.Status, "it is told before anything is done about it")
	assert.Contains(t, release.Description, "was interrupted")
	assert.False(t, release.Busy())
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "killed", of(guide(t), nil)).Status)

	kill(t, env, "killed", "agent-1", runnerapi.ReleasePendingUpgrade)
	release = deploy(t, r, "killed", of(guide(t), map[string]any{"greeting": "again"}))
	assert.Equal(t, runnerapi.ReleaseDeployed, release.Status)
	history, err := r.History(t.Context(), key("killed"))
	require.NoError(t, err)
	require.Len(t, history, 4)
	assert.Equal(t, runnerapi.ReleaseFailed, history[1].Status)
	assert.Contains(t, history[1].Description, "was interrupted")

	kill(t, env, "killed", "agent-1", runnerapi.ReleasePendingUpgrade)
	_, err = r.Rollback(t.Context(), key("killed"), runnerapi.ReleaseRollback{}, byTest)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseDeployed, outcome(t, r, "killed").Status)
}

// A dead replica cannot be told from a slow one.
func TestLock_ExpiresOfDeadReplica(t *testing.T) {
	suite.Release(t, "locks of dead replicas")
	env := kubetest.ControlPlane(t)
	remove(t, env, "dead")
	kill(t, env, "dead", "agent-2", runnerapi.ReleasePendingInstall)
	r := start(t, env.Agent)
	_, err := r.Deploy(t.Context(), key("dead"), of(guide(t), nil), byTest)
	assert.Equal(t, runnerapi.CodeBusy, problemOf(t, err).Code)
	helm.Age(t, env.Agent, key("dead"))
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "dead", of(guide(t), nil)).Status)
}

// The agent's identity is a Secret that it can read.
func TestLookup_OwnNamespaceOnly(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r := start(t, env.Admin) // whose rights would let it
	remove(t, env, "looks")
	for what, lookup := range map[string]string{
		"another namespace": `lookup "v1" "Secret" "pipeops" "pipeops-agent-identity"`,
		"all namespaces":    `lookup "v1" "Secret" "" ""`,
		"the cluster":       `lookup "v1" "Node" "" ""`,
	} {
		chart := pack(t, map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: looks}\ndata: {a: {{ " + lookup + " | toJson | quote }}}\n"})
		_, err := r.Deploy(t.Context(), key("looks"), of(chart, nil), byTest)
		p := problemOf(t, err)
		assert.Contains(t, p.Detail, "guide/templates/a.yaml:4", what)
		assert.Contains(t, p.Detail, "the chart ", what)
	}
	chart := pack(t, map[string]string{"templates/a.yaml": `apiVersion: v1
kind: Service
metadata: {name: looks, annotations: {n: {{ len (lookup "v1" "Service" .Release.Namespace "nothing") | quote }}}}
spec: {ports: [{port: 80}]}
`})
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "looks", of(chart, nil)).Status)
}

// TestLookup_BoundByPolicy expects the policy to be checked before the cluster is asked.
func TestLookup_BoundByPolicy(t *testing.T) {
	_, r := releases(t, "asks")
	opts := byTest
	opts.DryRun = true
	var asked []runnerapi.ObjectIntent
	opts.Admit = func(_ *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error {
		for _, o := range objects {
			if o.LookedUp {
				asked = append(asked, o)
			}
			if o.LookedUp && o.Kind == "Secret" {
				return runnerapi.PolicyDenied("have lookups changed", "templates look up no Secret")
			}
		}
		return nil
	}
	chart := func(kind string) []byte {
		return pack(t, map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asks}\n" +
			"data: {a: {{ lookup \"v1\" \"" + kind + "\" .Release.Namespace \"nothing\" | toJson | quote }}}\n"})
	}
	_, err := r.Deploy(t.Context(), key("asks"), of(chart("Secret"), nil), opts)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodePolicyDenied, p.Code)
	assert.Contains(t, p.Detail, "guide/templates/a.yaml:4")
	assert.Contains(t, p.Detail, "templates look up no Secret")
	_, err = r.Deploy(t.Context(), key("asks"), of(chart("ConfigMap"), nil), opts)
	require.NoError(t, err)
	assert.Equal(t, []runnerapi.ObjectIntent{
		{Location: "lookup of Secret nothing", Kind: "Secret", LookedUp: true},
		{Location: "lookup of ConfigMap nothing", Kind: "ConfigMap", LookedUp: true},
	}, asked)
}

func TestRender_ChangedBetweenRuns(t *testing.T) {
	env, r := releases(t, "two-faced")
	opts := byTest
	asked := 0
	opts.Admit = func(_ *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error { // the first time it looks well
		if asked++; asked > 1 {
			return runnerapi.PolicyDenied("stay within it", "no %s", objects[0].Kind)
		}
		return nil
	}
	_, err := r.Deploy(t.Context(), key("two-faced"), of(guide(t), nil), opts)
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)
	assert.Greater(t, asked, 1)
	_, err = service(t, env, "two-faced")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Empty(t, revisions(t, env, "two-faced"))
}

// TestHelmRelease_NamesMissingRights expects the manifest that grants them, before anything is
// made.
func TestHelmRelease_NamesMissingRights(t *testing.T) {
	env, r := releases(t)
	chart := pack(t, map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: rights}\nspec: {ports: [{port: 80}]}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: rights}\n"})
	_, err := r.Deploy(t.Context(), key("rights"), of(chart, nil), byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeForbidden, p.Code)
	assert.Contains(t, p.Detail, "ServiceAccount rights (guide/templates/a.yaml, document 2, from line 5 of what it renders to): the agent may not ")
	assert.Contains(t, p.Fix, "manifest-rights.yaml")
	_, err = service(t, env, "rights")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

// TestHelmRelease_RefusedBeforeChange has unknown kinds and fields, and objects of other owners.
func TestHelmRelease_RefusedBeforeChange(t *testing.T) {
	env, r := releases(t, "refused")
	deploy(t, r, "refused", of(guide(t), nil))
	const good = "apiVersion: v1\nkind: Service\nmetadata: {name: good}\nspec: {ports: [{port: 80}]}\n---\n"
	for text, says := range map[string]string{
		"{apiVersion: example.com/v1, kind: Strange, metadata: {name: a}}":                        "has no kind Strange",
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {prots: [{port: 80}]}}":       "prots",
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 99999}]}}":    "65535",
		"{apiVersion: v1, kind: Service, metadata: {name: refused}, spec: {ports: [{port: 80}]}}": "not this release's",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}":          "it is in namespace kube-system",
	} {
		_, err := r.Deploy(t.Context(), key("others"), of(pack(t, map[string]string{"templates/a.yaml": good + text}), nil), byTest)
		p := problemOf(t, err)
		assert.Contains(t, p.Detail, says)
		assert.Contains(t, p.Detail, "guide/templates/a.yaml")
		_, err = service(t, env, "good")
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
		assert.Empty(t, revisions(t, env, "others"))
	}
	const elsewhere = "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: kube-system}}"
	both := "{apiVersion: example.com/v1, kind: Strange, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: b}, spec: {ports: [{port: 99999}]}}"
	_, err := r.Deploy(t.Context(), key("others"), of(pack(t, map[string]string{"templates/a.yaml": both + elsewhere}), nil), byTest)
	p := problemOf(t, err)
	require.Len(t, p.Fields, 3, "all refusals come at once")
	said := p.Fields[0].Message + p.Fields[1].Message + p.Fields[2].Message
	assert.Contains(t, said, "it is in namespace kube-system")
	assert.Contains(t, said, "Strange a (guide/templates/a.yaml, document 1, from line 1 of what it renders to)")
	assert.Contains(t, said, "Service b (guide/templates/a.yaml, document 2, from line 2 of what it renders to)")
}

// TestHelmRelease_ForeignUntouched expects them to be listed, and changed only once adopted. A
// Secret without the agent's label, as the helm program leaves it, stands for such a release.
func TestHelmRelease_ForeignUntouched(t *testing.T) {
	env, r := releases(t, "theirs")
	deploy(t, r, "theirs", of(guide(t), nil))
	for _, s := range revisions(t, env, "theirs") {
		delete(s.Labels, "pipeops.io/release")
		require.NoError(t, env.Client.Update(t.Context(), &s))
	}
	release, err := r.Get(t.Context(), key("theirs"))
	require.NoError(t, err)
	assert.False(t, release.Managed)
	_, err = r.Deploy(t.Context(), key("theirs"), of(guide(t), nil), byTest)
	assert.Contains(t, problemOf(t, err).Fix, "--adopt")
	_, err = r.Delete(t.Context(), key("theirs"), byTest)
	assert.Equal(t, runnerapi.CodeConflict, problemOf(t, err).Code)
	_, err = r.Rollback(t.Context(), key("theirs"), runnerapi.ReleaseRollback{Revision: 1}, byTest)
	assert.Equal(t, runnerapi.CodeConflict, problemOf(t, err).Code)
	spec := of(guide(t), nil)
	spec.Adopt = true
	assert.True(t, deploy(t, r, "theirs", spec).Managed)

	// One that helm is at work on, now and long ago.
	latest := revisions(t, env, "theirs")
	for _, s := range latest {
		if s.Labels["version"] == "2" {
			s.Labels["status"], s.Labels["pipeops.io/release"] = "pending-upgrade", "1"
			require.NoError(t, env.Client.Update(t.Context(), &s))
		}
	}
	_, err = r.Deploy(t.Context(), key("theirs"), of(guide(t), nil), byTest)
	assert.Contains(t, problemOf(t, err).Detail, "another command has been working")
	for _, s := range revisions(t, env, "theirs") {
		if s.Labels["version"] == "2" {
			s.Labels["createdAt"] = "1700000000"
			s.Labels["modifiedAt"] = "1700000000"
			require.NoError(t, env.Client.Update(t.Context(), &s))
		}
	}
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "theirs", of(guide(t), nil)).Status)
}

// TestHelmRelease_StoredLikeHelm expects the original chart, and the manifest exactly as rendered.
func TestHelmRelease_StoredLikeHelm(t *testing.T) {
	env, r := releases(t, "kept")
	const source = "apiVersion: v1\nkind: Service\nmetadata: {name: kept, annotations: {text: \"{{ `{{ $labels.pod }} }} {{- \\\\ ` }}`\", revision: \"{{ .Release.Revision }} {{ .Release.IsUpgrade }}\"}}\nspec: {ports: [{port: {{ .Values.port }}}]}\n"
	chart := pack(t, map[string]string{
		"templates/service.yaml": source, "values.yaml": "port: 80\n", "templates/NOTES.txt": "{{ .Release.Name }} of {{ .Values.greeting }}",
		"charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "charts/sub/templates/second.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}-second}\nspec: {ports: [{port: 80}]}\n",
	})
	deploy(t, r, "kept", of(chart, nil))
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "kept", of(chart, map[string]any{"port": 81, "greeting": "hello"})).Status)
	s, err := service(t, env, "kept")
	require.NoError(t, err)
	assert.Equal(t, "{{ $labels.pod }} }} {{- \\ `", s.Annotations["text"])
	assert.Equal(t, "2 true", s.Annotations["revision"])
	assert.EqualValues(t, 81, s.Spec.Ports[0].Port)
	kept := storedAs(t, env, "kept", 2)
	require.Len(t, kept.Chart.Templates, 2)
	texts := map[string]string{}
	for _, f := range kept.Chart.Templates {
		texts[f.Name] = string(f.Data)
	}
	assert.Equal(t, source, texts["templates/service.yaml"])
	assert.EqualValues(t, 80, kept.Chart.Values["port"])
	assert.EqualValues(t, 81, kept.Config["port"])
	assert.Equal(t, "kept of hello", kept.Info.Notes)
	assert.Contains(t, kept.Manifest, "# Source: guide/charts/sub/templates/second.yaml\n")
}

// TestHelmRelease_HostileSecrets expects Helm's type and name of a release's Secret, not its labels
// alone. A release that is too large to be read hides no other.
func TestHelmRelease_HostileSecrets(t *testing.T) {
	env, r := releases(t, "plain", "labelled", "bomb")
	deploy(t, r, "plain", of(guide(t), nil))
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	_, err := zipped.Write(bytes.Repeat([]byte(" "), stored.MaxRelease+1))
	require.NoError(t, err)
	require.NoError(t, zipped.Close())
	for name, kind := range map[string]corev1.SecretType{"labelled": corev1.SecretTypeOpaque, "bomb": stored.Type} {
		require.NoError(t, env.Client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: stored.Key(name, 1), Labels: map[string]string{
				"owner": "helm", "name": name, "version": "1", "status": "deployed",
			}},
			Type: kind, Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))},
		}))
	}
	list, err := r.List(t.Context(), production)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, v := range list {
		shown[v.Name] = v.Description
	}
	assert.NotContains(t, shown, "labelled")
	assert.Contains(t, shown, "plain")
	assert.Contains(t, shown["bomb"], "more than 16 MiB")
	_, err = r.Get(t.Context(), key("labelled"))
	assert.Equal(t, problem.NotFound, problemOf(t, err).Code)
	_, err = r.Get(t.Context(), key("bomb"))
	assert.Equal(t, problem.TooLarge, problemOf(t, err).Code)
}

// TestHelmRelease_DiagnosesPods expects a diagnosis as early as for an App, and again later. A
// rollback of a failed upgrade names the revision it came from.
func TestHelmRelease_DiagnosesPods(t *testing.T) {
	env := kubetest.Full(t)
	r := start(t, env.Agent, func(o *helm.Options) {
		o.Workloads = workloadhealth.New(env.Agent, app.StabilizationFor(time.Second))
		o.Patience = time.Hour // the causes are final
	})
	remove(t, env, "pods", "hooked")
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	chart := pack(t, map[string]string{"templates/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: {{ .Values.image | quote }}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`})
	bad := deploy(t, r, "pods", of(chart, map[string]any{"image": "apps.test/no-such-image:1"}))
	assert.Equal(t, runnerapi.ReleaseFailed, bad.Status)
	assert.Contains(t, bad.Description, "image apps.test/no-such-image:1 does not exist")
	require.NotNil(t, bad.Objects[0].Diagnosis)
	assert.Equal(t, runnerapi.CauseImageNotFound, bad.Objects[0].Diagnosis.Cause)

	good := deploy(t, r, "pods", of(chart, map[string]any{"image": image}))
	assert.Equal(t, runnerapi.ReleaseDeployed, good.Status, good.Description)
	assert.Equal(t, runnerapi.ObjectReady, good.Objects[0].State, good.Objects[0].Message)
	assert.Nil(t, good.Undone)
	spec := of(chart, map[string]any{"image": "apps.test/no-such-image:2"})
	spec.RollbackOnFailure = true
	back := deploy(t, r, "pods", spec)
	assert.Equal(t, runnerapi.ReleaseDeployed, back.Status)
	require.NotNil(t, back.Undone, back.Description)
	assert.Equal(t, good.Revision+1, back.Undone.Revision)
	assert.Contains(t, back.Undone.Description, "no-such-image:2")

	_, err = env.Cluster.Kubectl(t.Context(), "-n", production, "delete", "deployment", "pods")
	require.NoError(t, err)
	gone, err := r.Get(t.Context(), key("pods"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ObjectMissing, gone.Objects[0].State)

	hook := pack(t, map[string]string{"templates/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}-hook, annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-failed}}
spec:
  backoffLimit: 100
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: "apps.test/no-such-image:3", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`})
	bad = deploy(t, r, "hooked", of(hook, nil))
	assert.Equal(t, runnerapi.ReleaseFailed, bad.Status)
	assert.Contains(t, bad.Description, "image apps.test/no-such-image:3 does not exist")
}
