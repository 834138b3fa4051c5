package helm_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestHelmRelease_TakesOverFields expects it of no command that does not ask for it.
func TestHelmRelease_TakesOverFields(t *testing.T) {
	suite.Release(t, "fields of others in a release")
	env, r := releases(t, "shared")
	greets := func(greeting string) runnerapi.ReleaseSpec { return of(guide(t), map[string]any{"greeting": greeting}) }
	meddle := func() {
		_, err := env.Cluster.Kubectl(t.Context(), "-n", production, "annotate", "--overwrite", "service", "shared", "greeting=theirs")
		require.NoError(t, err)
	}
	deploy(t, r, "shared", greets("first"))
	meddle()
	_, err := r.Deploy(t.Context(), key("shared"), greets("second"), byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Contains(t, p.Detail, "others have set fields of it: kubectl-annotate has metadata.annotations.greeting")
	assert.Contains(t, p.Fix, "--force-conflicts")

	forced := greets("second")
	forced.ForceConflicts = true
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "shared", forced).Status)
	s, err := service(t, env, "shared")
	require.NoError(t, err)
	assert.Equal(t, "second", s.Annotations["greeting"])

	meddle()
	_, err = r.Rollback(t.Context(), key("shared"), runnerapi.ReleaseRollback{Revision: 1}, byTest)
	assert.Contains(t, problemOf(t, err).Detail, "kubectl-annotate has metadata.annotations.greeting")
	_, err = r.Rollback(t.Context(), key("shared"), runnerapi.ReleaseRollback{Revision: 1, ForceConflicts: true}, byTest)
	require.NoError(t, err)
	outcome(t, r, "shared")
	s, err = service(t, env, "shared")
	require.NoError(t, err)
	assert.Equal(t, "first", s.Annotations["greeting"])
}

// operator is a chart with an account, its Role and the RoleBinding, as `helm create` and most
// others have them.
func operator(t testing.TB) []byte {
	return pack(t, map[string]string{
		"values.yaml": "to: \"\"\nverbs: [get, list, watch]\n",
		"templates/rbac.yaml": `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules:
- {apiGroups: [""], resources: [configmaps, pods], verbs: {{ toJson .Values.verbs }}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Values.to | default .Release.Namespace }}}]
`})
}

// TestChart_RoleWithBinding uses the agent's real admission policy.
func TestChart_RoleWithBinding(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns := env.Namespace(t)
	env.Entitle(t, ns, kubetest.ManifestRole, kubetest.GrantableRole)
	r := start(t, env.Agent, func(o *helm.Options) { o.Namespace, o.Namespaces = kubetest.AgentOf(ns), []string{ns} })
	at := runnerapi.Key{Namespace: ns, Name: "operator"}
	put := func(values map[string]any) runnerapi.Release {
		_, err := r.Deploy(t.Context(), at, of(operator(t), values), byTest)
		require.NoError(t, err)
		release, err := r.Wait(t.Context(), at)
		require.NoError(t, err)
		return release
	}
	dry := byTest
	dry.DryRun = true
	would, err := r.Deploy(t.Context(), at, of(operator(t), nil), dry)
	require.NoError(t, err)
	require.Len(t, would.Objects, 3)
	for _, o := range would.Objects {
		assert.Equal(t, "create", o.Change, o.Kind)
	}
	release := put(nil)
	require.Equal(t, runnerapi.ReleaseDeployed, release.Status, release.Description)
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "operator"}, binding))
	release = put(map[string]any{"verbs": []any{"get"}})
	require.Equal(t, runnerapi.ReleaseDeployed, release.Status, release.Description)

	for says, values := range map[string]map[string]any{
		`the subject ServiceAccount operator in "default"`: {"to": "default"},
		"would give rights to the agent itself":            {"to": kubetest.AgentOf(ns)},
		"grants no \"*\" among its verbs":                  {"verbs": []any{"*"}},
		"lacks deletecollection of configmaps":             {"verbs": []any{"deletecollection"}},
	} {
		_, err = r.Deploy(t.Context(), at, of(operator(t), values), dry)
		assert.Contains(t, problemOf(t, err).Detail, says)
	}
}

// afterList calls a function once, when the names of Secrets have been listed and before the answer
// is seen.
type afterList struct {
	http.RoundTripper
	do *atomic.Pointer[func()]
}

func (a afterList) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(req)
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/secrets") {
		if do := a.do.Swap(nil); do != nil {
			(*do)()
		}
	}
	return answer, err
}

// TestHelmRelease_RemovedWhileRead expects that there is no such release, and no internal error.
// TestHelmRelease_HookThatStays is of a chart that deletes its hook only if that fails: Helm cannot
// create it again.
func TestHelmRelease_HookThatStays(t *testing.T) {
	env, r := releases(t, "stays")
	hook := of(pack(t, map[string]string{"templates/hook.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-hook, annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: hook-failed}}
`}), nil)
	t.Cleanup(func() {
		_, err := env.Cluster.Kubectl(context.Background(), "-n", production, "delete", "configmap", "stays-hook")
		assert.NoError(t, err)
	})
	require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "stays", hook).Status)
	_, err := r.Deploy(t.Context(), key("stays"), hook, byTest)
	refused := problemOf(t, err)
	assert.Equal(t, problem.Conflict, refused.Code)
	assert.Contains(t, refused.Fix, "kubectl delete configmap stays-hook -n production")
}

// TestHelmRelease_HookOfAnotherName: Helm itself would replace what has a hook's name.
func TestHelmRelease_HookOfAnotherName(t *testing.T) {
	env, r := releases(t, "grabs")
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "theirs"}, Data: map[string]string{"a": "b"}}
	require.NoError(t, env.Client.Create(t.Context(), theirs))
	t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), theirs)) })
	intact := func() {
		t.Helper()
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
		assert.Equal(t, map[string]string{"a": "b"}, theirs.Data)
	}
	grab := func(event, policy, name string) runnerapi.ReleaseSpec {
		return of(pack(t, map[string]string{"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: " + name + ", annotations: {helm.sh/hook: " + event + policy + "}}\ndata: {a: grabbed}\n"}), nil)
	}
	for _, event := range []string{"pre-install", "pre-delete"} {
		_, err := r.Deploy(t.Context(), key("grabs"), grab(event, "", "theirs"), byTest)
		assert.Equal(t, problem.Conflict, problemOf(t, err).Code, event)
		intact()
	}
	for _, policy := range []string{"", ", helm.sh/hook-delete-policy: hook-succeeded"} { // made by others since
		require.NoError(t, env.Client.Delete(t.Context(), theirs))
		require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "grabs", grab("pre-delete", policy, "theirs")).Status)
		theirs.ResourceVersion, theirs.UID = "", ""
		require.NoError(t, env.Client.Create(t.Context(), theirs))
		_, err := r.Delete(t.Context(), key("grabs"), byTest)
		require.NoError(t, err)
		release := outcome(t, r, "grabs")
		assert.Equal(t, runnerapi.ReleaseFailed, release.Status)
		assert.Contains(t, release.Description, "not this release's")
		intact()
	}
}

// TestHelmRelease_AdoptsHooks takes over a release of helm's own, which marks no hooks.
func TestHelmRelease_AdoptsHooks(t *testing.T) {
	env, r := releases(t, "moves")
	spec := of(pack(t, map[string]string{"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: moves-hook, annotations: {helm.sh/hook: 'pre-install,pre-upgrade'}}\n"}), nil)
	require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "moves", spec).Status)
	hook := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "moves-hook"}}
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), hook))) })
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(hook), hook))
	assert.Equal(t, "moves", hook.Annotations["meta.helm.sh/release-name"])
	hook.Labels = nil
	require.NoError(t, env.Client.Update(t.Context(), hook))
	for _, s := range revisions(t, env, "moves") {
		delete(s.Labels, "pipeops.io/release")
		require.NoError(t, env.Client.Update(t.Context(), &s))
	}
	spec.Adopt = true
	require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "moves", spec).Status)
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(hook), hook))
	assert.Equal(t, "Helm", hook.Labels["app.kubernetes.io/managed-by"])
	hook.Labels = nil
	require.NoError(t, env.Client.Update(t.Context(), hook))
	_, err := r.Deploy(t.Context(), key("moves"), spec, byTest)
	assert.Equal(t, problem.Conflict, problemOf(t, err).Code, "only what helm made before")
}

// TestUninstall_AsksAboutHooks: what a release makes at its end is the policy's to allow, too.
func TestUninstall_AsksAboutHooks(t *testing.T) {
	_, r := releases(t, "ends")
	hook := of(pack(t, map[string]string{"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ends, annotations: {helm.sh/hook: post-delete}}\n"}), nil)
	require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "ends", hook).Status)
	opts := byTest
	opts.Admit = func(_ *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error {
		if len(objects) > 0 && objects[0].Kind == "ConfigMap" {
			return runnerapi.PolicyDenied("have kinds changed", "no ConfigMap")
		}
		return nil
	}
	_, err := r.Delete(t.Context(), key("ends"), opts)
	refused := problemOf(t, err)
	assert.Equal(t, runnerapi.CodePolicyDenied, refused.Code)
	assert.Contains(t, refused.Detail, "a hook of its end cannot be run: ")
	_, err = r.Delete(t.Context(), key("ends"), byTest)
	require.NoError(t, err)
}

// TestHelmRelease_WayBackAsked: a return to the revision before is a deploy of its chart.
func TestHelmRelease_WayBackAsked(t *testing.T) {
	_, r := releases(t, "returns")
	deploy(t, r, "returns", of(guide(t), nil))
	opts := byTest
	opts.Admit = func(chart *runnerapi.ChartIntent, _ []runnerapi.ObjectIntent) error {
		if chart == nil || chart.Digest == "" {
			return runnerapi.PolicyDenied("deploy the chart again", "no chart without its digest")
		}
		return nil
	}
	spec := of(guide(t), nil)
	spec.RollbackOnFailure = true
	_, err := r.Deploy(t.Context(), key("returns"), spec, opts)
	refused := problemOf(t, err)
	assert.Equal(t, "rollbackOnFailure", refused.Field)
	spec.RollbackOnFailure = false
	_, err = r.Deploy(t.Context(), key("returns"), spec, opts)
	require.NoError(t, err)
	outcome(t, r, "returns")
}

func TestHelmRelease_RemovedWhileRead(t *testing.T) {
	env := kubetest.ControlPlane(t)
	config := rest.CopyConfig(env.Agent)
	var do atomic.Pointer[func()]
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return afterList{rt, &do} })
	r := start(t, config)
	remove(t, env, "brief")
	ends := func() {
		for _, s := range revisions(t, env, "brief") {
			assert.NoError(t, env.Client.Delete(t.Context(), &s))
		}
	}
	for name, read := range map[string]func() error{
		"itself": func() error {
			_, err := r.Get(t.Context(), key("brief"))
			return err
		},
		"its revisions": func() error {
			_, err := r.History(t.Context(), key("brief"))
			return err
		},
	} {
		deploy(t, r, "brief", of(guide(t), nil))
		do.Store(&ends)
		assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, read()).Code, name)
		assert.Nil(t, do.Load(), name)
	}
	deploy(t, r, "brief", of(guide(t), nil))
	do.Store(&ends)
	list, err := r.List(t.Context(), production)
	require.NoError(t, err)
	for _, release := range list {
		assert.NotEqual(t, "brief", release.Name)
	}
	assert.Nil(t, do.Load())
}

// TestChart_ClusterScopedObjects: the policy learns of each object whether it is in the release's
// namespace, wherever the chart has it, and whichever command makes it.
func TestChart_ClusterScopedObjects(t *testing.T) {
	env := kubetest.ControlPlane(t)
	r := start(t, env.Admin) // RBAC refuses nothing
	remove(t, env, "scoped")
	const class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: scoped%s}\nvalue: 7\n"
	const defined = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: planets.scoped.example.com}
spec:
  group: scoped.example.com
  names: {kind: Planet, plural: planets}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	t.Cleanup(func() {
		_, err := env.Cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "priorityclass/scoped")
		assert.NoError(t, err)
	})
	chart := func(files ...string) runnerapi.ReleaseSpec {
		all := map[string]string{"templates/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: scoped}\nspec: {ports: [{port: 80}]}\n"}
		for n := 0; n < len(files); n += 2 {
			all[files[n]] = files[n+1]
		}
		return of(pack(t, all), nil)
	}
	within := byTest // what a rule about one namespace allows
	within.Admit = func(_ *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error {
		for _, o := range objects {
			if o.ClusterScoped {
				return runnerapi.PolicyDenied("stay within it", "cluster-scoped %s/%s", o.Kind, o.Name)
			}
		}
		return nil
	}
	denied := func(err error, object string) {
		t.Helper()
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodePolicyDenied, p.Code, p.Detail)
		assert.Contains(t, p.Detail, "cluster-scoped "+object)
	}
	hook := func(event string) string {
		return fmt.Sprintf(class, ", annotations: {helm.sh/hook: "+event+"}")
	}
	const priority, definition = "PriorityClass.scheduling.k8s.io/scoped", "CustomResourceDefinition.apiextensions.k8s.io/planets.scoped.example.com"
	planet := "apiVersion: scoped.example.com/v1\nkind: Planet\nmetadata: {name: mars}\n"
	for object, files := range map[string][]string{
		priority:   {"templates/class.yaml", fmt.Sprintf(class, "")},
		definition: {"crds/planet.yaml", defined, "templates/mars.yaml", planet},
	} {
		_, err := r.Deploy(t.Context(), key("scoped"), chart(files...), within)
		denied(err, object)
	}
	_, err := r.Deploy(t.Context(), key("scoped"), chart("templates/hook.yaml", hook("pre-install")), within)
	denied(err, priority)

	require.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "scoped", chart("templates/class.yaml", fmt.Sprintf(class, ""))).Status)
	_, err = r.Deploy(t.Context(), key("scoped"), chart("templates/hook.yaml", hook("post-delete")), byTest)
	require.NoError(t, err)
	require.Equal(t, runnerapi.ReleaseDeployed, outcome(t, r, "scoped").Status)
	_, err = r.Rollback(t.Context(), key("scoped"), runnerapi.ReleaseRollback{}, within)
	denied(err, priority)
	_, err = r.Delete(t.Context(), key("scoped"), within)
	denied(err, priority)
}
