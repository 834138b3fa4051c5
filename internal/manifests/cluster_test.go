package manifests_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const production = "production"

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

// applier is an Applier with the agent's rights, and what a test does with it.
type applier struct {
	*manifests.Applier
	t   *testing.T
	env *kubetest.Env
}

func start(t *testing.T) applier {
	t.Helper()
	env := kubetest.ControlPlane(t)
	return with(t, env, env.Agent)
}

func with(t *testing.T, env *kubetest.Env, rc *rest.Config) applier {
	t.Helper()
	k, err := kube.New(rc, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	_, err = k.Namespaces().Set(t.Context(), production, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	return applier{manifests.New(manifests.Config{
		REST: rc, Namespace: kubetest.AgentNamespace, Manage: k.Namespaces().Manage,
		Workloads: workloadhealth.New(rc, app.StabilizationFor(time.Second)),
	}), t, env}
}

// set is one of the test's own, which is gone after it.
func (a applier) set() manifests.Set {
	set := manifests.Set{Namespace: production, Name: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(a.t.Name()))}
	a.t.Cleanup(func() {
		_, err := a.Delete(context.Background(), set, manifests.Options{})
		if p := (*problem.Error)(nil); errors.As(err, &p) && p.Code != problem.NotFound {
			assert.NoError(a.t, err)
		}
	})
	return set
}

func (a applier) apply(set manifests.Set, text string, o manifests.Options) (manifests.Result, error) {
	a.t.Helper()
	docs, err := manifests.Read(strings.NewReader(text))
	o.Where, o.Unread = docs.Where, err
	return a.Apply(a.t.Context(), set, docs.Objects, o)
}

// applied is apply, which has to succeed.
func (a applier) applied(set manifests.Set, text string, o manifests.Options, about ...any) manifests.Result {
	a.t.Helper()
	r, err := a.apply(set, text, o)
	require.NoError(a.t, err, about...)
	return r
}

// held is the existing objects of a set.
func (a applier) held(set manifests.Set, about ...any) runnerapi.ManifestSet {
	a.t.Helper()
	s, err := a.Get(a.t.Context(), set)
	require.NoError(a.t, err, about...)
	return s
}

// actions are what became of the objects: ACTION KIND/NAME.
func actions(r manifests.Result) (said []string) {
	for _, o := range r.Objects {
		said = append(said, string(o.Action)+" "+o.Kind+"/"+o.Name)
	}
	return said
}

func cm(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {mode: %q}\n---\n", name, value)
}

var prune = manifests.Options{Prune: true}

func TestSet_AppliedAndPruned(t *testing.T) {
	a := start(t)
	set := a.set()
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: first}\nspec: {ports: [{port: 80}]}\n---\n"
	r := a.applied(set, service+cm("one", "a")+cm("two", "a"), manifests.Options{Prune: true, DryRun: true})
	assert.Equal(t, []string{"created ConfigMap/one", "created ConfigMap/two", "created Service/first"}, actions(r))
	_, err := a.Get(t.Context(), set)
	assert.Equal(t, problem.NotFound, problemtest.Of(t, err).Code, "a dry run does nothing")

	r = a.applied(set, service+cm("one", "a")+cm("two", "a"), prune)
	assert.Equal(t, []string{"created ConfigMap/one", "created ConfigMap/two", "created Service/first"}, actions(r))
	assert.True(t, r.Ready)
	r = a.applied(set, cm("one", "a")+cm("two", "b"), manifests.Options{Diff: true})
	assert.Equal(t, []string{"unchanged ConfigMap/one", "configured ConfigMap/two", "kept Service/first"}, actions(r))
	assert.Contains(t, r.Objects[1].Diff, "-  mode: a\n+  mode: b\n")
	held := a.held(set)
	assert.Equal(t, 3, held.Count, "what was not pruned is the set's still")
	assert.True(t, held.Complete && *held.Ready)

	r = a.applied(set, cm("two", "b"), prune)
	assert.Equal(t, []string{"unchanged ConfigMap/two", "pruned Service/first", "pruned ConfigMap/one"}, actions(r))
	sets, err := a.List(t.Context(), production)
	require.NoError(t, err)
	assert.Contains(t, names(sets), set.Name+" 1")
	r, err = a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"pruned ConfigMap/two"}, actions(r))
	assert.Error(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "two"}, &corev1.ConfigMap{}))
	_, err = a.Get(t.Context(), set)
	assert.Equal(t, problem.NotFound, problemtest.Of(t, err).Code)
}

func names(sets []runnerapi.ManifestSet) (said []string) {
	for _, s := range sets {
		said = append(said, fmt.Sprintf("%s %d", s.Name, s.Count))
	}
	return said
}

// TestSet_RefusedBeforeChange has several mistakes, each of which is named.
func TestSet_RefusedBeforeChange(t *testing.T) {
	a := start(t)
	set := a.set()
	for name, c := range map[string]struct{ text, at, says string }{
		"an unknown kind":          {"apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: a}\n", "document 2, line 6", "the cluster has no kind Strange of example.com/v1"},
		"an unknown field":         {"apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 80}], colour: red}\n", "document 2, line 6", "colour"},
		"a list for a mapping":     {"apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {selector: [a]}\n", "document 2, line 6", "spec.selector: is a list, but has to be an object"},
		"a duplicate key":          {"apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 80}, {port: 80}]}\n", "document 2, line 6", `spec.ports: duplicate entries for key [port=80,protocol="TCP"]`},
		"a bad value":              {"apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 800000}]}\n", "document 2, line 6", "port"},
		"the same twice":           {cm("good", "b"), "document 2, line 6", "there twice, first in document 1, line 1"},
		"a namespace of others":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}\n", "document 2, line 6", "does not manage"},
		"the agent's namespace":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pipeops-policy, namespace: pipeops}\n", "document 2, line 6", "does not manage"},
		"a namespace for a node's": {"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a, namespace: b}\n", "document 2, line 6", "is in no namespace"},
		"no right":                 {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", "document 2, line 6", "the agent may not get serviceaccounts in namespace production"},
		"an inventory":             {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pipeops-set-a}\n", "document 2, line 6", "inventories"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.apply(set, cm("good", "a")+c.text, prune)
			p := problemtest.Of(t, err)
			assert.Contains(t, p.Detail, c.at+": ")
			assert.Contains(t, p.Detail, c.says)
			if name == "no right" {
				assert.Contains(t, p.Fix, "manifest-rights.yaml")
			}
			assert.Error(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "good"}, &corev1.ConfigMap{}), "nothing was done")
		})
	}
	_, err := a.apply(set, "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: B\nmetadata: {name: a}\n", prune)
	require.Len(t, problemtest.Of(t, err).Fields, 2)
	_, err = a.Get(t.Context(), set)
	assert.Equal(t, problem.NotFound, problemtest.Of(t, err).Code)
}

// TestSet_LastOfDuplicateKeys has what a client-side apply accepts with a warning.
func TestSet_LastOfDuplicateKeys(t *testing.T) {
	a := start(t)
	text := strings.Replace(workloadOf("Deployment", "twice", "apps.test/probe:v1", ""), "- {name: web,", `- env: [{name: A, value: one}, {name: A, value: two}]
        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 8080}]
        readinessProbe: {httpGet: {port: http}}
        <<: {name: web, env: [],`, 1)
	text = strings.Replace(text, "[ALL]}}}", "[ALL]}}}\n        name: web", 1)
	r := a.applied(a.set(), text, prune)
	at := "spec.template.spec.containers[0]."
	assert.Equal(t, []string{
		at + "env[0] is left out: env[1] has the same key (A)", at + "ports[0] is left out: ports[1] has the same key (8080/TCP)",
	}, r.Objects[0].Warnings)
	live := &appsv1.Deployment{}
	require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "twice"}, live))
	c := live.Spec.Template.Spec.Containers[0]
	assert.Equal(t, []corev1.EnvVar{{Name: "A", Value: "two"}}, c.Env)
	assert.Equal(t, "metrics", c.Ports[0].Name)
	assert.Equal(t, "metrics", c.ReadinessProbe.HTTPGet.Port.String())
}

// TestSet_AllRefusalsAtOnce has refusals by the decoder, the kinds, the policy, the agent's rights
// and the cluster.
func TestSet_AllRefusalsAtOnce(t *testing.T) {
	a := start(t)
	set := a.set()
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: left}\n---\n"
	a.applied(set, secret+cm("stays", "a"), prune)
	noSecrets := prune
	noSecrets.Admit = func(_ string, o runnerapi.ObjectIntent) error {
		if o.Kind == "Secret" {
			return problem.Errorf(problem.Forbidden, "ask", "no rule allows Secrets")
		}
		return nil
	}
	const (
		strange  = "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: a}\n---\n"
		port     = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 800000}]}\n---\n"
		colour   = "apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {ports: [{port: 80}], colour: red}\n---\n"
		noRight  = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n---\n"
		unread   = "kind: [\n---\n"
		noObject = "- a\n---\n"
	)
	refused := func(text string) (says []string) {
		t.Helper()
		_, err := a.apply(set, text, noSecrets)
		p := problemtest.Of(t, err)
		for _, f := range p.Fields {
			assert.Contains(t, f.Message, f.Location+": ")
			says = append(says, f.Message)
		}
		assert.Error(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "good"}, &corev1.ConfigMap{}), "nothing was done")
		held := a.held(set)
		assert.Equal(t, 2, held.Count)
		return says
	}
	all := refused(cm("good", "a") + unread + port + strange + noObject + secret + colour + noRight)
	require.Len(t, all, 7)
	for n, want := range []string{
		"document 2, line 6: not YAML", "document 5, line 17: a manifest is a mapping",
		"document 3, line 8: Service/production/a: spec.ports[0].port", "document 4, line 13: Strange/a: the cluster has no kind",
		"document 6, line 19: Secret/production/left: no rule allows Secrets", "document 7, line 23: Service/production/b: ",
		"document 8, line 28: ServiceAccount/production/a: the agent may not get",
	} {
		assert.Contains(t, all[n], want)
	}
	assert.Contains(t, all[5], "colour")

	all = refused(cm("good", "a") + port + strange)
	require.Len(t, all, 3, "and of what has left the set")
	assert.Contains(t, all[2], "Secret/production/left: no rule allows Secrets")
	assert.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "left"}, &corev1.Secret{}))
}

// TestSet_TakesNothingOver expects the owner of each object that is not the set's.
func TestSet_TakesNothingOver(t *testing.T) {
	a := start(t)
	set := a.set()
	var namespace corev1.Namespace
	require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Name: production}, &namespace))
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		says   string
	}{
		"another set": {func(m *corev1.ConfigMap) { m.Annotations = map[string]string{objectmeta.SetOf: "production/other"} }, "belongs to set production/other"},
		"an App":      {func(m *corev1.ConfigMap) { m.Labels = objectmeta.AppLabels("web") }, "belongs to App web"},
		"a release": {func(m *corev1.ConfigMap) {
			m.Annotations = map[string]string{"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": production}
		}, "belongs to Helm release production/shop"},
		"an owner": {func(m *corev1.ConfigMap) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: production, UID: namespace.UID}}
		}, "belongs to Namespace/production"},
		"a tool":   {func(m *corev1.ConfigMap) { m.Labels = map[string]string{objectmeta.ManagedBy: "argo"} }, "is managed by argo"},
		"somebody": {func(*corev1.ConfigMap) {}, "was made by theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "theirs"}, Data: map[string]string{"mode": "theirs"}}
			c.change(theirs)
			require.NoError(t, a.env.Client.Create(t.Context(), theirs, client.FieldOwner("theirs")))
			defer func() { require.NoError(t, a.env.Client.Delete(context.Background(), theirs)) }()
			_, err := a.apply(set, cm("mine", "a")+cm("theirs", "a"), prune)
			p := problemtest.Of(t, err)
			assert.Equal(t, problem.Conflict, p.Code)
			assert.Contains(t, p.Detail, "document 2, line 6: ConfigMap/production/theirs: it exists and "+c.says)
		})
	}
}

func TestSet_DiagnosesPods(t *testing.T) {
	env := kubetest.Full(t)
	a := with(t, env, env.Agent)
	set := a.set()
	r, err := a.apply(set, `apiVersion: apps/v1
kind: Deployment
metadata: {name: absent}
spec:
  selector: {matchLabels: {app: absent}}
  template:
    metadata: {labels: {app: absent}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: "apps.test/no-such-image:1", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`, manifests.Options{Wait: 3 * time.Minute})
	require.NoError(t, err)
	assert.False(t, r.Ready)
	require.Len(t, r.Objects, 1)
	assert.Equal(t, runnerapi.ObjectFailed, r.Objects[0].State, r.Objects[0].Message)
	require.NotNil(t, r.Objects[0].Diagnosis)
	assert.Equal(t, runnerapi.CauseImageNotFound, r.Objects[0].Diagnosis.Cause)
	held := a.held(set)
	assert.Equal(t, runnerapi.CauseImageNotFound, held.Objects[0].Diagnosis.Cause)
}

// workloadOf is one whose pods a node refuses when refused is its name.
func workloadOf(kind, name, image, refused string) string {
	if refused != "" {
		refused = "\n      nodeName: " + refused + "\n      nodeSelector: {no: such}"
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:%s
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: %q, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
---
`, kind, name, name, name, refused, image)
}

// TestSet_StopsRefusedPods expects the previous version, or no pods, and that the next apply works.
func TestSet_StopsRefusedPods(t *testing.T) {
	suite.Release(t, "rollouts that are stopped")
	env := kubetest.Full(t)
	a := with(t, env, env.Agent)
	set := a.set()
	stopper := &workloadhealth.Stopper{
		Checker: workloadhealth.New(env.Agent, app.StabilizationFor(time.Second)), Leads: func() bool { return true }, Log: zerolog.New(zerolog.NewTestWriter(t)),
	}
	await.Background(t, "what stops workloads", stopper.Run)
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	name, err := env.Cluster.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	require.NoError(t, err)
	node := string(name)
	wait := manifests.Options{Prune: true, Wait: 3 * time.Minute}
	good := workloadOf("Deployment", "was-good", image, "")
	r := a.applied(set, good, wait)
	require.True(t, r.Ready, "%+v", r.Objects)

	bad := workloadOf("Deployment", "was-good", image, node) + workloadOf("Deployment", "never-good", image, node) + workloadOf("StatefulSet", "db", image, node)
	a.applied(set, bad, prune)
	await.Until(t, "all of them are stopped", func() bool {
		held := a.held(set)
		stopped := 0
		for _, o := range held.Objects {
			if o.Diagnosis != nil && o.Diagnosis.Cause == runnerapi.CauseAdmissionRefused && strings.Contains(o.Message, "the agent stopped the rollout") {
				stopped++
			}
		}
		return stopped == 3
	})
	d := &appsv1.Deployment{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "was-good"}, d))
	assert.Empty(t, d.Spec.Template.Spec.NodeName, "what ran before runs on")
	assert.EqualValues(t, 1, *d.Spec.Replicas)
	assert.EqualValues(t, 1, d.Status.ReadyReplicas)
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "never-good"}, d))
	assert.EqualValues(t, 0, *d.Spec.Replicas)
	db := &appsv1.StatefulSet{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "db"}, db))
	assert.EqualValues(t, 0, *db.Spec.Replicas)

	r = a.applied(set, good+workloadOf("Deployment", "never-good", image, "")+workloadOf("StatefulSet", "db", image, ""), wait)
	assert.True(t, r.Ready, "%+v", r.Objects)
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "never-good"}, d))
	assert.EqualValues(t, 1, *d.Spec.Replicas)
	assert.NotContains(t, d.Annotations, objectmeta.Stopped)
	assert.Empty(t, d.Spec.Template.Spec.NodeSelector)

	require.NoError(t, env.Client.Delete(t.Context(), db))
	held := a.held(set)
	assert.False(t, *held.Ready)
	for _, o := range held.Objects {
		if o.Kind == "StatefulSet" {
			assert.Equal(t, runnerapi.ObjectMissing, o.State, "a set's status stays true")
		}
	}
}

// TestSet_KeepsForeignFields expects the owner's name, and takes the fields over only if asked.
func TestSet_KeepsForeignFields(t *testing.T) {
	a := start(t)
	set := a.set()
	a.applied(set, cm("shared", "a"), prune)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "shared"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"mode":"theirs"}}`))
	require.NoError(t, a.env.Client.Patch(t.Context(), theirs, patch, client.FieldOwner("somebody")))
	_, err := a.apply(set, cm("shared", "b"), prune)
	p := problemtest.Of(t, err)
	assert.Contains(t, p.Detail, "others have set fields of it: somebody has data.mode")
	assert.Contains(t, p.Fix, "--force-conflicts")
	force := prune
	force.Force, force.DryRun = true, true
	r := a.applied(set, cm("shared", "b"), force)
	assert.Equal(t, []string{"configured ConfigMap/shared"}, actions(r))
	_, err = a.apply(set, cm("shared", "b"), prune)
	require.Error(t, err, "a dry run takes nothing over")
	force.DryRun = false
	a.applied(set, cm("shared", "b"), force)
	a.applied(set, cm("shared", "c"), prune, "the field is the set's from now on")
	require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	assert.Equal(t, "c", theirs.Data["mode"])

	theirs.Annotations = map[string]string{objectmeta.SetOf: "production/other"}
	require.NoError(t, a.env.Client.Update(t.Context(), theirs))
	_, err = a.apply(set, cm("shared", "d"), force)
	assert.Contains(t, problemtest.Of(t, err).Detail, "belongs to set production/other", "an object of others stays refused")
	r = a.applied(set, cm("mine", "b"), prune)
	assert.Equal(t, []string{"created ConfigMap/mine", "kept ConfigMap/shared"}, actions(r), "what somebody took is not pruned")
	require.NoError(t, a.env.Client.Delete(t.Context(), theirs))
}

// TestPolicy_ProtectsAgentsBounds has some of the objects that internal/denylist refuses.
func TestPolicy_ProtectsAgentsBounds(t *testing.T) {
	a := start(t)
	set := a.set()
	for name, text := range map[string]string{
		"its ClusterRole":       "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pipeops-agent}\n",
		"its binding":           "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: pipeops-agent}\n",
		"its admission policy":  "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: pipeops-agent}\n",
		"a mark of another set": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {pipeops.io/set: production/other}}\n",
	} {
		_, err := a.apply(set, text, prune)
		assert.Equal(t, problem.Forbidden, problemtest.Of(t, err, name).Code, name)
	}
}

func TestPolicy_AskedPerObject(t *testing.T) {
	a := start(t)
	set := a.set()
	asked := []string{}
	o := manifests.Options{Prune: true, Admit: func(namespace string, brought runnerapi.ObjectIntent) error {
		kind := brought.Kind
		asked = append(asked, namespace+" "+kind)
		if kind == "Deployment.apps" || kind == "PriorityClass.scheduling.k8s.io" {
			return runnerapi.PolicyDenied("", "not %s", kind)
		}
		return nil
	}}
	_, err := a.apply(set, cm("a", "a")+"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", o)
	assert.Equal(t, runnerapi.CodePolicyDenied, problemtest.Of(t, err).Code)
	assert.Contains(t, problemtest.Of(t, err).Detail, "document 2, line 6: Deployment/production/a: not Deployment.apps")
	_, err = a.apply(set, "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nvalue: 1\n", o)
	assert.Equal(t, runnerapi.CodePolicyDenied, problemtest.Of(t, err).Code)
	assert.Equal(t, []string{"production ConfigMap", "production Deployment.apps", " PriorityClass.scheduling.k8s.io"}, asked)

	asked = nil
	_, err = a.apply(set, "apiVersion: v1\nkind: Namespace\nmetadata: {name: theirs}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", o)
	assert.Equal(t, runnerapi.CodePolicyDenied, problemtest.Of(t, err).Code)
	assert.Equal(t, []string{" Namespace", "theirs Namespace", "production Deployment.apps"}, asked, "a namespace is asked about as one, too")

	o.Admit = func(_ string, brought runnerapi.ObjectIntent) error {
		for _, c := range brought.Containers {
			return runnerapi.PolicyDenied("", "not %s", c.Image).WithField(c.Field)
		}
		return nil
	}
	_, err = a.apply(set, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {initContainers: [{name: i, image: evil}]}\n", o)
	assert.Contains(t, problemtest.Of(t, err).Detail, "Pod/production/a: spec.initContainers[0]: not evil", "what it brings is known")
	assert.NotContains(t, problemtest.Of(t, err).Detail, "pipeops.io/set", "and not what the agent adds")

	// And about what is to be deleted, before anything is done.
	a.applied(set, cm("a", "a")+cm("b", "a"), prune)
	o.Admit = func(string, runnerapi.ObjectIntent) error { return runnerapi.PolicyDenied("", "not any more") }
	_, err = a.Delete(t.Context(), set, o)
	assert.Equal(t, runnerapi.CodePolicyDenied, problemtest.Of(t, err).Code)
	require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "a"}, &corev1.ConfigMap{}))
}

const wheel = `apiVersion: example.com/v1
kind: Wheel
metadata: {name: front}
spec: {size: 3}
---
`

const inside = `apiVersion: v1
kind: ConfigMap
metadata: {name: inside, namespace: set-made}
---
apiVersion: v1
kind: Namespace
metadata: {name: set-made}
---
`

const wheels = wheel + `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wheels.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Wheel, plural: wheels, singular: wheel, listKind: WheelList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

// startWithWheels is start with the rights of manifest-rights.yaml and those for Wheels.
func startWithWheels(t *testing.T) applier {
	t.Helper()
	a := start(t)
	rights := string(deployments.ManifestRights()) + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-wheels}
rules: [{apiGroups: [example.com], resources: [wheels], verbs: [get, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-wheels}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-wheels}
subjects: [{kind: ServiceAccount, name: pipeops-agent, namespace: pipeops}]
`
	a.env.Apply(t, rights)
	await.Until(t, "the rights hold", func() bool {
		_, err := a.apply(manifests.Set{Namespace: production, Name: "rights"}, wheels, manifests.Options{DryRun: true})
		return err == nil
	})
	return a
}

func TestSet_CRDsAndNamespacesFirst(t *testing.T) {
	a := startWithWheels(t)
	set := a.set()
	r := a.applied(set, inside+wheels, manifests.Options{Prune: true, Wait: 3 * time.Minute})
	for _, o := range r.Objects {
		assert.Nil(t, o.Problem, "%+v", o.Problem)
	}
	assert.Equal(t, []string{"created CustomResourceDefinition/wheels.example.com", "created Namespace/set-made", "created ConfigMap/inside", "created Wheel/front"}, byTurn(r))
	assert.True(t, r.Ready)
	r = a.applied(set, inside+wheels, prune)
	for _, o := range r.Objects {
		assert.Equal(t, runnerapi.ApplyUnchanged, o.Action, o.String())
	}
}

// TestSet_DefinitionComesAndGoes applies a kind again whose definition was deleted, by the set and
// by others, and one whose definition changes with the set.
func TestSet_DefinitionComesAndGoes(t *testing.T) {
	a := startWithWheels(t)
	set := a.set()
	wait := manifests.Options{Prune: true, Wait: time.Minute}
	whole := func(text string, want ...string) {
		t.Helper()
		r := a.applied(set, text, wait)
		assert.Equal(t, want, actions(r))
		for _, o := range r.Objects {
			assert.Nil(t, o.Problem, "%+v", o.Problem)
		}
		assert.True(t, r.Ready, "%+v", r.Objects)
	}
	made := []string{"created CustomResourceDefinition/wheels.example.com", "created Wheel/front"}
	gone := func() {
		t.Helper()
		await.Until(t, "the definition is gone", func() bool {
			_, err := a.env.Cluster.Kubectl(t.Context(), "get", "crd", "wheels.example.com")
			return err != nil
		})
	}
	whole(wheels, made...)
	_, err := a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
	gone()
	whole(wheels, made...)

	out, err := a.env.Cluster.Kubectl(t.Context(), "delete", "crd", "wheels.example.com")
	require.NoError(t, err, out)
	gone()
	_, err = a.apply(set, wheel, wait)
	assert.Contains(t, problemtest.Of(t, err).Detail, "the cluster has no kind Wheel of example.com/v1")
	whole(wheels, made...)

	newer := strings.Replace(wheels, "size: {type: integer}", "size: {type: integer}, color: {type: string}", 1)
	whole(strings.Replace(newer, "size: 3", "size: 3, color: red", 1), "configured CustomResourceDefinition/wheels.example.com", "configured Wheel/front")
	_, err = a.apply(set, wheel, wait)
	assert.Contains(t, problemtest.Of(t, err).Detail, "Wheel/production/front did not, which would be deleted with it")
}

// TestSet_PrunedIsGone: what was pruned is of the set until it is gone, and says what holds it.
func TestSet_PrunedIsGone(t *testing.T) {
	a := start(t)
	set := a.set()
	held := strings.Replace(cm("held", "a"), "name: held", "name: held, finalizers: [example.com/drained]", 1)
	a.applied(set, cm("stays", "a")+held, prune)
	r := a.applied(set, cm("stays", "a"), prune)
	assert.Equal(t, []string{"unchanged ConfigMap/stays", "pruned ConfigMap/held"}, actions(r))
	assert.False(t, r.Ready)
	assert.Equal(t, runnerapi.ObjectInProgress, r.Objects[1].State)
	assert.Equal(t, "waits for its finalizer to be removed: example.com/drained", r.Objects[1].Message)
	assert.False(t, a.held(set).Complete)
	assert.Equal(t, 2, a.held(set).Count)

	freed := make(chan error, 1)
	go func() {
		live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "held"}}
		freed <- a.env.Client.Patch(t.Context(), live, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	}()
	r = a.applied(set, cm("stays", "a"), manifests.Options{Prune: true, Wait: time.Minute})
	require.NoError(t, <-freed)
	assert.True(t, r.Ready)
	assert.Equal(t, 1, a.held(set).Count)
	assert.True(t, a.held(set).Complete)
}

// byTurn sorts the two whose order is of no importance.
func byTurn(r manifests.Result) []string {
	said := actions(r)
	if len(said) == 4 && said[2] > said[3] {
		said[2], said[3] = said[3], said[2]
	}
	return said
}

// failing has requests fail: a fake of what lies between the agent and the API server.
type failing struct {
	next http.RoundTripper
	fail func(*http.Request) bool
}

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.fail(r) {
		return nil, errors.New("cut")
	}
	return f.next.RoundTrip(r)
}

// TestSet_LateFailureKeepsInventory applies the first object and nothing after it, as when the
// agent is killed there. The inventory names all objects that may exist.
func TestSet_LateFailureKeepsInventory(t *testing.T) {
	env := kubetest.ControlPlane(t)
	var armed atomic.Bool
	var applied atomic.Int32
	rc := rest.CopyConfig(env.Agent)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return failing{next, func(r *http.Request) bool {
			if !armed.Load() {
				return false
			}
			patch := r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == ""
			return patch && applied.Add(1) > 1 || applied.Load() > 1
		}}
	})
	broken := with(t, env, rc)
	a := with(t, env, env.Agent)
	set := a.set()
	broken.applied(set, cm("before", "a"), prune)
	armed.Store(true)
	r := broken.applied(set, cm("one", "a")+cm("two", "a")+cm("three", "a"), prune)
	assert.Equal(t, []string{"created ConfigMap/one", "failed ConfigMap/two", "failed ConfigMap/three", "failed ConfigMap/before"}, actions(r))
	assert.Equal(t, 3, r.Failed)
	assert.False(t, r.Ready)
	assert.NotNil(t, r.Problem, "the inventory could not be written in the end")
	assert.Contains(t, r.Objects[1].Problem.Detail, "document 2, line 6: ConfigMap/production/two: ")

	held := a.held(set)
	assert.False(t, held.Complete)
	assert.Equal(t, 4, held.Count)
	states := map[string]runnerapi.ObjectState{}
	for _, o := range held.Objects {
		states[o.Name] = o.State
	}
	assert.Equal(t, map[string]runnerapi.ObjectState{"one": "ready", "two": "missing", "three": "missing", "before": "ready"}, states)
	r = a.applied(set, cm("two", "a"), prune, "it continues where it ended")
	assert.Contains(t, actions(r), "pruned ConfigMap/one")
	assert.Contains(t, actions(r), "pruned ConfigMap/before")
	held = a.held(set)
	assert.True(t, held.Complete)
	assert.Equal(t, 1, held.Count)
}

// TestSet_MasksSecrets looks at diffs and at the cluster's messages.
func TestSet_MasksSecrets(t *testing.T) {
	a := start(t)
	set := a.set()
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {note: hunter1}}\nstringData: {password: %s, same: hunter0}\n"
	a.applied(set, fmt.Sprintf(secret, "hunter2"), prune)
	r := a.applied(set, fmt.Sprintf(secret, "hunter3"), manifests.Options{Diff: true})
	assert.Equal(t, []string{"configured Secret/s"}, actions(r))
	diff := r.Objects[0].Diff
	assert.Contains(t, diff, "-  password: '*** (old value)'\n+  password: '*** (new value)'\n")
	for _, value := range []string{"hunter", "aHVudGVy"} {
		assert.NotContains(t, diff, value)
	}
	_, err := a.apply(set, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: 123456789}\n", prune)
	assert.NotContains(t, problemtest.Of(t, err).Error(), "123456789")
}

// TestSet_Large lists a set with the largest possible inventory.
func TestSet_Large(t *testing.T) {
	a := start(t)
	entries := &strings.Builder{}
	for n := range 10_000 {
		fmt.Fprintf(entries, "apps/v1 Deployment %s of-a-set-with-so-many-objects-%d\n", production, n)
	}
	inventory := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: production, Name: "pipeops-set-full",
			Labels: map[string]string{objectmeta.ManagedBy: "pipeops-set", "pipeops.io/inventory": "full"},
		},
		Data: map[string]string{"objects": entries.String()},
	}
	require.NoError(t, a.env.Client.Create(t.Context(), inventory))
	defer func() { require.NoError(t, a.env.Client.Delete(context.Background(), inventory)) }()
	sets, err := a.List(t.Context(), production)
	require.NoError(t, err)
	assert.Contains(t, names(sets), "full 10000")
}

// Before the delete has read what there is, the journal prevents it; after that, the objects' UIDs
// and the inventory's version.
func TestDelete_DelayedSparesNewerSet(t *testing.T) {
	a := start(t)
	set := a.set()
	put := func() {
		a.applied(set, cm("held", "a"), prune)
	}
	remove := func(late func(context.Context) (bool, error)) (manifests.Result, error) {
		return a.Delete(t.Context(), set, manifests.Options{Late: late})
	}
	there := func() {
		held := a.held(set)
		assert.Equal(t, 1, held.Count)
		require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "held"}, &corev1.ConfigMap{}))
	}
	put()
	_, err := remove(func(context.Context) (bool, error) { return true, nil })
	require.NoError(t, err)
	there()

	other := with(t, a.env, a.env.Agent) // replica
	r, err := remove(func(context.Context) (bool, error) {
		_, err := other.Delete(t.Context(), set, manifests.Options{})
		require.NoError(t, err)
		other.applied(set, cm("held", "b"), prune)
		return false, nil
	})
	require.NoError(t, err)
	require.NotNil(t, r.Objects[0].Problem, "it is said of the object")
	assert.Equal(t, problem.Busy, r.Objects[0].Problem.Code)
	there()
	_, err = remove(func(context.Context) (bool, error) { return false, nil })
	require.NoError(t, err)
}

// TestApply_DelayedSparesNewerSet has another replica answer the call, and a later call come.
func TestApply_DelayedSparesNewerSet(t *testing.T) {
	a := start(t)
	set, o := a.set(), prune
	a.applied(set, cm("spared", "newer"), prune)
	o.Late = func(context.Context) (bool, error) { return true, nil }
	_, err := a.apply(set, cm("spared", "older"), o)
	known := problemtest.Of(t, err)
	assert.Equal(t, problem.Unavailable, known.Code)
	now := &corev1.ConfigMap{}
	require.NoError(t, a.env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "spared"}, now))
	assert.Equal(t, "newer", now.Data["mode"])
	_, err = a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
}

// TestDelete_WaitsForPods expects the status to name what holds them.
func TestDelete_WaitsForPods(t *testing.T) {
	suite.Release(t, "a set that is gone with its pods")
	env := kubetest.Full(t)
	a := with(t, env, env.Agent)
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	set := a.set()
	_, err = a.apply(set, cm("beside", "a")+`apiVersion: apps/v1
kind: Deployment
metadata: {name: held}
spec:
  selector: {matchLabels: {app: held}}
  template:
    metadata: {labels: {app: held}, finalizers: [example.com/drained]}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: "`+image+`", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`, manifests.Options{Wait: 3 * time.Minute})
	require.NoError(t, err)
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(production), client.MatchingLabels{"app": "held"}))
	require.Len(t, pods.Items, 1)
	pod := &pods.Items[0]
	t.Cleanup(func() {
		free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		assert.NoError(t, client.IgnoreNotFound(env.Client.Patch(context.Background(), pod, free)))
	})

	r, err := a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
	assert.False(t, r.Ready)
	assert.Zero(t, r.Failed)
	require.Len(t, r.Objects, 2)
	for _, o := range r.Objects {
		if o.Kind == "ConfigMap" {
			assert.Empty(t, o.State, "it is gone")
			continue
		}
		assert.Equal(t, runnerapi.ObjectInProgress, o.State)
		assert.Contains(t, o.Message, "waits for finalizer example.com/drained of pod "+pod.Name+" to be removed")
	}
	held := a.held(set, "the set stays")
	assert.False(t, held.Complete)
	require.Len(t, held.Objects, 1)
	assert.Contains(t, held.Objects[0].Message, "waits for finalizer example.com/drained of pod "+pod.Name)

	free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(t, env.Client.Patch(t.Context(), pod, free))
	r, err = a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
	assert.True(t, r.Ready)
	_, err = a.Get(t.Context(), set)
	assert.Equal(t, problem.NotFound, problemtest.Of(t, err).Code)
}
