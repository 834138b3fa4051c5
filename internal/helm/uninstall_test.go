package helm_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// holds sets the finalizers of a release's Service, as a JSON list, and clears them when the test
// ends.
func holds(t *testing.T, env *kubetest.Env, name string) (set func(finalizers string)) {
	t.Helper()
	patch := func(ctx context.Context, finalizers string) error {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: name}}
		return env.Client.Patch(ctx, s, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)))
	}
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(patch(context.Background(), "null"))) })
	return func(finalizers string) { require.NoError(t, patch(t.Context(), finalizers)) }
}

func uninstalled(t *testing.T, r *helm.Releases, name string) {
	t.Helper()
	_, err := r.Delete(t.Context(), key(name), byTest)
	require.NoError(t, err)
	await.Until(t, "the release is gone", func() bool {
		_, err := r.Get(t.Context(), key(name))
		return err != nil && problemOf(t, err).Code == problem.NotFound
	})
}

func TestUninstall_FailsWhileObjectsRemain(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r := start(t, env.Agent, func(o *helm.Options) { o.GoneWait = time.Second })
	remove(t, env, "leaving")
	spec := of(pack(t, map[string]string{"templates/web.yaml": `apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-second, annotations: {helm.sh/hook: post-delete}}
spec: {ports: [{port: 80}]}
`}), nil)
	deploy(t, r, "leaving", spec)
	finalizers := holds(t, env, "leaving")
	finalizers(`["example.com/kept"]`)
	_, err := r.Delete(t.Context(), key("leaving"), byTest)
	require.NoError(t, err)
	failed := outcome(t, r, "leaving")
	assert.Equal(t, runnerapi.ReleaseFailed, failed.Status, "what is not gone is not uninstalled")
	assert.Contains(t, failed.Description, "Service leaving did not go within 1s: ")
	assert.Contains(t, failed.Description, "example.com/kept")
	_, err = service(t, env, "leaving-second")
	require.Error(t, err, "a hook of its end waits for the end")
	_, err = r.Deploy(t.Context(), key("leaving"), spec, byTest)
	assert.Contains(t, problemOf(t, err).Detail, "it is being deleted")

	finalizers("null")
	uninstalled(t, r, "leaving")
	_, err = service(t, env, "leaving-second")
	require.NoError(t, err, "the hook of its end ran")
}

// TestUninstall_KeepsReleaseOnStop stops the agent; the next one continues.
func TestUninstall_KeepsReleaseOnStop(t *testing.T) {
	env := kubetest.ControlPlane(t)
	remove(t, env, "cut")
	r := helm.New(env.Agent, helm.Options{Namespace: kubetest.AgentNamespace, Replica: "agent-1"})
	stop := await.Background(t, "the agent's releases", r.Run)
	next := start(t, env.Agent, func(o *helm.Options) { o.Replica = "agent-2" })
	deploy(t, next, "cut", of(guide(t), nil))
	finalizers := holds(t, env, "cut")
	finalizers(`["example.com/kept"]`)
	_, err := r.Delete(t.Context(), key("cut"), byTest)
	require.NoError(t, err)
	await.Until(t, "the command says what it waits for", func() bool {
		now, err := next.Get(t.Context(), key("cut"))
		require.NoError(t, err)
		assert.NotContains(t, now.Description, "silently")
		return now.Busy() && strings.Contains(now.Operation.Progress, "its finalizer to be removed: example.com/kept")
	})
	stop()
	kept, err := next.Get(t.Context(), key("cut"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseFailed, kept.Status)
	assert.Contains(t, kept.Description, "the agent stops")

	finalizers("null")
	uninstalled(t, next, "cut")
}

// webhook makes a webhook configuration of no webhooks, marked as a release's.
func webhook(t *testing.T, env *kubetest.Env, name, owner string) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	w := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
		Annotations: map[string]string{"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": production},
	}}
	require.NoError(t, env.Client.Create(t.Context(), w))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), w))) })
	return w
}

// hold has the newest revision of a release hold more, as one that helm made.
func hold(t *testing.T, env *kubetest.Env, name string, text string) {
	t.Helper()
	d, rel := driverOf(env), storedAs(t, env, name, 1)
	rel.Manifest += "---\n# Source: guide/templates/more.yaml\n" + text
	require.NoError(t, d.Update("sh.helm.release.v1."+name+".v1", rel))
}

func webhooks(names ...string) (text string) {
	for _, n := range names {
		text += "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: " + n + "}\n---\n"
	}
	return text
}

func gone(t *testing.T, env *kubetest.Env, o client.Object) bool {
	t.Helper()
	return apierrors.IsNotFound(env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
}

// TestUninstall_RemovesForbiddenObjects removes them by an upgrade and with the release, once the
// agent has the rights. Without them it changes nothing, and names what is missing. What has
// another owner by now stays.
func TestUninstall_RemovesForbiddenObjects(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r, entitled := start(t, env.Agent), start(t, env.Admin)
	dry := byTest
	dry.DryRun = true
	for _, name := range []string{"leaves", "ends"} {
		remove(t, env, name)
		deploy(t, r, name, of(guide(t), nil))
		own, other := webhook(t, env, name+"-own", name), webhook(t, env, name+"-other", "another")
		hold(t, env, name, webhooks(own.Name, other.Name, name+"-nowhere"))

		_, err := r.Deploy(t.Context(), key(name), of(guide(t), nil), byTest)
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeForbidden, p.Code)
		assert.Contains(t, p.Detail, "ValidatingWebhookConfiguration "+own.Name+" (release "+name+"): the agent may not get")
		assert.Contains(t, p.Fix, "get and delete of validatingwebhookconfigurations.admissionregistration.k8s.io")
		_, err = r.Delete(t.Context(), key(name), byTest)
		assert.Equal(t, p.Detail, problemOf(t, err).Detail)
		release, err := r.Get(t.Context(), key(name))
		require.NoError(t, err)
		assert.Equal(t, runnerapi.ReleaseDeployed, release.Status)
		assert.Equal(t, 1, release.Revision)
		_, err = service(t, env, name)
		require.NoError(t, err, "nothing was changed")

		_, err = entitled.Rollback(t.Context(), key(name), runnerapi.ReleaseRollback{Revision: 1}, byTest)
		assert.Contains(t, problemOf(t, err).Detail, "the agent applies no such object", "it is not recreated")
		would, err := entitled.Delete(t.Context(), key(name), dry)
		require.NoError(t, err)
		changes := map[string]string{}
		for _, o := range would.Objects {
			changes[o.Name] = o.Change
		}
		assert.Equal(t, map[string]string{name: "delete", own.Name: "delete", other.Name: "none", name + "-nowhere": "none"}, changes)
		require.False(t, gone(t, env, own))

		if name == "leaves" {
			assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, entitled, name, of(guide(t), nil)).Status)
			_, err = service(t, env, name)
			require.NoError(t, err)
		} else {
			_, err = entitled.Delete(t.Context(), key(name), byTest)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := entitled.Get(t.Context(), key(name))
				return err != nil
			}, patience, 20*time.Millisecond)
			assert.Empty(t, revisions(t, env, name))
		}
		assert.True(t, gone(t, env, own))
		assert.False(t, gone(t, env, other), "it is another release's")
	}
}

func TestUninstall_KeepsProtected(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r := start(t, env.Admin)
	remove(t, env, "stays")
	deploy(t, r, "stays", of(guide(t), nil))
	hold(t, env, "stays", "{apiVersion: v1, kind: Namespace, metadata: {name: default}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}\n")
	_, err := r.Delete(t.Context(), key("stays"), byTest)
	assert.Contains(t, problemOf(t, err).Detail, "Namespace default (release stays): the agent removes no such object")
	_, err = r.Deploy(t.Context(), key("stays"), of(guide(t), nil), byTest)
	assert.Contains(t, problemOf(t, err).Detail, "Namespace default (release stays)")
	_, err = service(t, env, "stays")
	require.NoError(t, err)
}

// TestUninstall_DelayedSparesNewerRelease relies on the journal: while the lock is held, no other
// command changes a release.
func TestUninstall_DelayedSparesNewerRelease(t *testing.T) {
	env, r := releases(t, "held")
	deploy(t, r, "held", of(guide(t), nil))
	held := byTest
	held.Answered = func(context.Context) (bool, error) {
		_, err := start(t, env.Agent, func(o *helm.Options) { o.Replica = "agent-2" }).Delete(t.Context(), key("held"), byTest)
		assert.Equal(t, runnerapi.CodeBusy, problemOf(t, err).Code, "it is locked")
		return true, nil
	}
	_, err := r.Delete(t.Context(), key("held"), held)
	require.NoError(t, err)
	release, err := r.Get(t.Context(), key("held"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseDeployed, release.Status)
	assert.False(t, release.Busy())
	_, err = service(t, env, "held")
	require.NoError(t, err)
}

// TestUpgrade_DelayedSparesNewerRevision has another replica answer the command, and later commands
// come.
func TestUpgrade_DelayedSparesNewerRevision(t *testing.T) {
	env, r := releases(t, "newer")
	deploy(t, r, "newer", of(guide(t), map[string]any{"greeting": "hello"}))
	deploy(t, r, "newer", of(guide(t), map[string]any{"greeting": "good day"}))
	held := byTest
	held.Answered = func(context.Context) (bool, error) { return true, nil }
	_, err := r.Deploy(t.Context(), key("newer"), of(guide(t), map[string]any{"greeting": "hello"}), held)
	require.NoError(t, err)
	assert.Equal(t, 2, outcome(t, r, "newer").Revision)
	_, err = r.Rollback(t.Context(), key("newer"), runnerapi.ReleaseRollback{}, held)
	require.NoError(t, err)
	assert.Equal(t, 2, outcome(t, r, "newer").Revision)
	s, err := service(t, env, "newer")
	require.NoError(t, err)
	assert.Equal(t, "good day", s.Annotations["greeting"])
}

// TestHelmRelease_CommandOnce loses the response. A rollback that is carried out twice returns to
// the revision that it was to leave.
func TestHelmRelease_CommandOnce(t *testing.T) {
	env, r := releases(t, "once")
	named := func(command string) runnerapi.ReleaseOptions {
		opts := byTest
		opts.Command = command
		return opts
	}
	deploy(t, r, "once", of(guide(t), map[string]any{"greeting": "hello"}))
	for range 2 {
		_, err := r.Deploy(t.Context(), key("once"), of(guide(t), map[string]any{"greeting": "good day"}), named("put"))
		require.NoError(t, err)
		assert.Equal(t, 2, outcome(t, r, "once").Revision)
	}
	for range 2 {
		_, err := r.Rollback(t.Context(), key("once"), runnerapi.ReleaseRollback{}, named("back"))
		require.NoError(t, err)
		assert.Equal(t, 3, outcome(t, r, "once").Revision)
	}
	s, err := service(t, env, "once")
	require.NoError(t, err)
	assert.Equal(t, "hello", s.Annotations["greeting"])
	_, err = r.Deploy(t.Context(), key("once"), of(guide(t), nil), named("put"))
	require.NoError(t, err)
	assert.Equal(t, 3, outcome(t, r, "once").Revision, "a later command came")
}
