package chartgrant_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

func TestMain(m *testing.M) {
	render.Child()
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

// watcher is a chart with the roles that charts usually have.
const watcher = `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}, annotations: {example.com/team: shop}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Values.role | default "chartgrant-watcher" }}}
rules:
- {apiGroups: [""], resources: [secrets, nodes], verbs: [list, watch]}
- {nonResourceURLs: [/metrics], verbs: [get]}
{{- with .Values.more }}
- {apiGroups: [""], resources: [{{ . }}], verbs: [list]}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: chartgrant-watcher}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: chartgrant-watcher}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}}]
`

// packed returns the archive of a chart with one template.
func packed(t *testing.T, name, version, template string) []byte {
	t.Helper()
	return rendertest.Archive(t, name+"/Chart.yaml", "apiVersion: v2\nname: "+name+"\nversion: "+version+"\n", name+"/templates/all.yaml", template)
}

var byCI = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "ci", RequestID: "r"}}

// scene is an agent with its owner and a Runner.
type scene struct {
	*testing.T
	env       *kubetest.Env
	namespace string
	releases  *helm.Releases
	owner     *kube.Client
	agent     client.Client
	program   string
}

func begin(t *testing.T) *scene {
	env := kubetest.ControlPlane(t)
	s := &scene{T: t, env: env, namespace: env.Namespace(t)}
	var err error
	s.program, err = programs.Agent.Build(t.Context())
	require.NoError(t, err)
	s.owner, err = kube.New(env.Admin, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	s.agent, err = client.New(env.Agent, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	s.releases = helm.New(env.Agent, helm.Options{Namespace: kubetest.AgentNamespace, Render: rendertest.Process(t), Log: zerolog.New(zerolog.NewTestWriter(t))})
	await.Background(t, "the agent's releases", s.releases.Run)
	return s
}

// deploy is what a Runner does, with the policy that is in the cluster now.
func (s *scene) deploy(release string, archive []byte, values map[string]any) (runnerapi.Release, error) {
	s.Helper()
	data, err := s.owner.ReadPolicy(s.Context())
	require.NoError(s, err)
	p := policy.New("the policy")
	p.Set(policy.FromConfigMap(data))
	intent := runnerapi.Intent{Command: "put-release", Access: runnerapi.Named, Runner: "ci", Namespace: s.namespace, Name: release}
	admit := func(chart *runnerapi.ChartIntent, objects []runnerapi.ObjectIntent) error {
		i := intent
		i.Chart, i.Objects = chart, objects
		return p.Decide(i)
	}
	if err := p.Decide(intent); err != nil {
		return runnerapi.Release{}, err
	}
	key := runnerapi.Key{Namespace: s.namespace, Name: release}
	spec := runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: archive}, Values: values}
	opts := runnerapi.ReleaseOptions{WriteOptions: byCI, Admit: admit}
	if _, err := s.releases.Deploy(s.Context(), key, spec, opts); err != nil {
		return runnerapi.Release{}, err
	}
	return s.releases.Wait(s.Context(), key)
}

func (s *scene) chart(args ...string) (string, error) {
	s.Helper()
	return s.run(append([]string{"chart"}, args...)...)
}

// run runs a command of the cluster's owner.
func (s *scene) run(args ...string) (string, error) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.program, args...)
	cmd.Env = []string{"KUBECONFIG=" + s.env.Cluster.Kubeconfig(), "PATH=" + os.Getenv("PATH"), "HOME=" + s.TempDir()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *scene) file(archive []byte) string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "chart.tgz")
	require.NoError(s, os.WriteFile(file, archive, 0o600))
	return file
}

// agentMay reports whether the agent has a right in the cluster.
func (s *scene) agentMay(verb, resource, name string) bool {
	s.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: rbacv1.GroupName, Resource: resource, Name: name},
	}}
	require.NoError(s, s.agent.Create(s.Context(), review))
	return review.Status.Allowed
}

// TestChartGrant_OneChartAtOneVersion is the way of a chart with a ClusterRole: refused, allowed by
// the owner's command, deployed. It tries what the grant does not allow, and takes it back.
func TestChartGrant_OneChartAtOneVersion(t *testing.T) {
	s := begin(t)
	chart := packed(t, "watcher", "1.0.0", watcher)
	allow := []string{"allow", "watch", "-n", s.namespace, "--runner", "ci", "--chart", s.file(chart)}
	fix := "pipeops-agent chart allow watch -n " + s.namespace + " --runner ci --chart "
	_, err := s.deploy("watch", chart, nil)
	assert.Contains(t, problemtest.Of(t, err, "the default policy").Fix, fix)

	out, err := s.chart(slices.Concat(allow, []string{"--dry-run"})...)
	require.NoError(t, err, out)
	for _, shown := range []string{"ClusterRole chartgrant-watcher", "reads Secrets", "/metrics", "- ClusterRole.rbac.authorization.k8s.io/chartgrant-watcher", "example.com/team"} {
		assert.Contains(t, out, shown)
	}
	assert.False(t, s.agentMay("create", "clusterroles", ""), "a dry run changes nothing")
	out, err = s.chart(allow...)
	require.Error(t, err, "nobody was asked")
	assert.Contains(t, out, "add --yes")

	out, err = s.chart(slices.Concat(allow, []string{"--yes"})...)
	require.NoError(t, err, out)
	t.Cleanup(func() {
		_ = exec.Command(s.program, "chart", "revoke", "watch", "-n", s.namespace, "--kubeconfig", s.env.Cluster.Kubeconfig()).Run()
	})
	var release runnerapi.Release
	await.Until(t, "the rights hold", func() bool {
		release, err = s.deploy("watch", chart, nil)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	assert.Equal(t, runnerapi.ReleaseDeployed, release.Status, release.Description)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "chartgrant-watcher"}}
	require.NoError(t, s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role))

	s.refuses(chart)
	s.holdsTheseAlone()

	out, err = s.chart("list")
	require.NoError(t, err, out)
	assert.Regexp(t, s.namespace+` +watch +watcher +1\.0\.0 +ci +chart `+s.namespace+" watch", out)
	_, err = s.releases.Delete(t.Context(), runnerapi.Key{Namespace: s.namespace, Name: "watch"}, runnerapi.ReleaseOptions{WriteOptions: byCI})
	require.NoError(t, err)
	await.Until(t, "the ClusterRole is gone with its release", func() bool {
		return apierrors.IsNotFound(s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	})
	out, err = s.chart("revoke", "watch", "-n", s.namespace)
	require.NoError(t, err, out)
	await.Until(t, "the rights are gone", func() bool { return !s.agentMay("create", "clusterroles", "") })
	_, err = s.deploy("watch", chart, nil)
	assert.Contains(t, problemtest.Of(t, err, "taken back").Fix, fix)
	out, err = s.chart("revoke", "watch", "-n", s.namespace)
	require.Error(t, err)
	assert.Contains(t, out, "nothing is allowed for release")
	s.recorded()
}

// recorded: the audit log has what the owner did.
func (s *scene) recorded() {
	s.Helper()
	out, err := s.run("policy", "allow", "exec", "--runner", "ci", "-n", s.namespace, "--name", s.namespace)
	require.NoError(s, err, out)
	list, err := audit.Read(s.Context(), s.owner.AuditStore(), 0, 1000)
	require.NoError(s, err)
	var acts []string
	for _, r := range list.Items {
		if r.Runner == runnerapi.AuditOwner && (r.Namespace == s.namespace || r.Name == s.namespace) {
			acts = append(acts, r.Command+" "+r.Name+" "+string(r.Outcome))
		}
	}
	assert.Equal(s, []string{"chart-allow watch done", "chart-revoke watch done", "policy-allow " + s.namespace + " done"}, acts)
}

// refuses tries to deploy other charts with the same ClusterRole.
func (s *scene) refuses(chart []byte) {
	s.Helper()
	for what, try := range map[string]struct {
		release string
		chart   []byte
		values  map[string]any
		says    string
	}{
		"another version":          {"watch", packed(s.T, "watcher", "1.1.0", watcher), nil, "not watcher 1.1.0"},
		"another chart":            {"watch", packed(s.T, "spy", "1.0.0", watcher), nil, "not spy 1.0.0"},
		"the version, other files": {"watch", packed(s.T, "watcher", "1.0.0", watcher+"# changed\n"), nil, "a chart of that name and version with the digest h1:"},
		"another release":          {"spy", chart, nil, "no rule of the customer's policy allows"},
		"another ClusterRole":      {"watch", chart, map[string]any{"role": "spy"}, "ClusterRole.rbac.authorization.k8s.io/spy"},
		"more rights":              {"watch", chart, map[string]any{"more": "persistentvolumes"}, "allows the rights that the cluster's owner saw"},
		"rights the agent has":     {"watch", chart, map[string]any{"more": "namespaces"}, "allows the rights that the cluster's owner saw"},
	} {
		_, err := s.deploy(try.release, try.chart, try.values)
		p := problemtest.Of(s.T, err, what)
		assert.Contains(s, p.Detail, try.says, what)
		assert.Contains(s, p.Fix, "pipeops-agent chart allow", what)
	}
}

// holdsTheseAlone tries with the agent's credentials, past its policy.
func (s *scene) holdsTheseAlone() {
	s.Helper()
	role := func(name string, rules ...rbacv1.PolicyRule) error {
		return s.agent.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, client.DryRunAll)
	}
	bind := func(subject rbacv1.Subject) error {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "chartgrant-watcher"}}
		patch := client.MergeFrom(b.DeepCopy())
		b.Subjects = []rbacv1.Subject{subject}
		return s.agent.Patch(s.Context(), b, patch, client.DryRunAll)
	}
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}
	labelled := s.agent.Patch(s.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "chartgrant-watcher"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`)), client.DryRunAll)
	bindOwn := s.agent.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "chartgrant-watcher"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pipeops-agent-namespace"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "watch"}},
	}, client.DryRunAll)
	for what, err := range map[string]error{
		"a ClusterRole of another name": role("spy", reads),
		"one that the server names":     s.agent.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "spy-"}}, client.DryRunAll),
		"a binding to a user":           bind(rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}),
		"a binding to kube-system":      bind(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "default"}),
		"one for everyone with view":    labelled,
		"one that writes namespaces":    role("chartgrant-watcher", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}}),
		"a binding of its own role":     bindOwn,
		"a binding to itself":           bind(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: kubetest.AgentNamespace, Name: "pipeops-agent"}),
	} {
		assert.True(s, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

// TestChartGrant_RefusesWhatLeadsOn has charts that the owner has to install with helm.
func TestChartGrant_RefusesWhatLeadsOn(t *testing.T) {
	s := begin(t)
	const group = "apiVersion: rbac.authorization.k8s.io/v1\n"
	for says, template := range map[string]string{
		"does not hold the verb escalate": group + "kind: ClusterRole\nmetadata: {name: a}\nrules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [escalate]}]",
		"ClusterRole cluster-admin":       group + "kind: ClusterRoleBinding\nmetadata: {name: a}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: a, namespace: {{ .Release.Namespace }}}]",
		"through admission":               "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\n",
		"has no kind Strange":             "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: a}\n",
	} {
		out, err := s.chart("allow", "a", "-n", s.namespace, "--runner", "ci", "--yes", "--chart", s.file(packed(t, "a", "1.0.0", template)))
		require.Error(t, err, says)
		assert.Contains(t, out, says)
	}
	out, err := s.chart("allow", "a", "-n", "kube-system", "--runner", "ci", "--yes", "--chart", s.file(packed(t, "a", "1.0.0", watcher)))
	require.Error(t, err)
	assert.Contains(t, out, "does not manage namespace kube-system")
	assert.False(t, s.agentMay("create", "clusterroles", ""))
}
