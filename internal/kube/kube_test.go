package kube_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

const production = "production" // the managed namespace of test/kubetest/production.yaml

var byTest = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "tester", RequestID: "req-1"}}

// asAgent is a Client with exactly the rights of the manifest.
func asAgent(t *testing.T, env *kubetest.Env) *kube.Client {
	t.Helper()
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace, Log: zerolog.New(zerolog.NewTestWriter(t))})
	require.NoError(t, err)
	return k
}

func controlPlane(t *testing.T) (*kubetest.Env, *kube.Client) {
	t.Helper()
	env := kubetest.ControlPlane(t)
	return env, asAgent(t, env)
}

var problemOf = problemtest.Of

func key(namespace, name string) runnerapi.Key {
	return runnerapi.Key{Namespace: namespace, Name: name}
}

func TestSecret_WriteOnly(t *testing.T) {
	env, k := controlPlane(t)
	name := key(production, "db")
	put := func(data map[string]string) runnerapi.Secret {
		s, err := k.Secrets().Set(t.Context(), name, runnerapi.SecretSpec{Data: data}, byTest)
		require.NoError(t, err)
		return s
	}
	first := put(map[string]string{"url": "postgres://hunter2", "user": "web"})
	assert.Equal(t, []runnerapi.SecretKey{{Key: "url", Size: 18}, {Key: "user", Size: 3}}, first.Keys)
	assert.Equal(t, "Opaque", first.Type)
	assert.NotContains(t, fmt.Sprintf("%+v", first), "hunter2")

	assert.Equal(t, first.Digest, put(map[string]string{"url": "postgres://hunter2", "user": "web"}).Digest)
	changed := put(map[string]string{"url": "postgres://hunter3"})
	assert.NotEqual(t, first.Digest, changed.Digest)
	assert.Len(t, changed.Keys, 1, "a put replaces all keys")

	restarted := asAgent(t, env)
	got, err := restarted.Secrets().Get(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, changed.Digest, got.Digest, "the digest outlives the agent")

	list, err := k.Secrets().List(t.Context(), production)
	require.NoError(t, err)
	assert.Contains(t, list, got)
	stored := &corev1.Secret{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "db"}, stored))
	assert.Equal(t, "tester", stored.Annotations["pipeops.io/changed-by"])

	dry := byTest
	dry.DryRun = true
	require.NoError(t, k.Secrets().Delete(t.Context(), name, dry))
	require.NoError(t, k.Secrets().Delete(t.Context(), name, byTest))
	_, err = k.Secrets().Get(t.Context(), name)
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, k.Secrets().Delete(t.Context(), name, byTest)).Code)
}

func TestSecret_ForeignUntouched(t *testing.T) {
	env, k := controlPlane(t)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "foreign"}, StringData: map[string]string{"a": "b"}}
	require.NoError(t, env.Client.Create(t.Context(), foreign))
	_, err := k.Secrets().Set(t.Context(), key(production, "foreign"), runnerapi.SecretSpec{Data: map[string]string{"a": "c"}}, byTest)
	assert.Equal(t, runnerapi.CodeConflict, problemOf(t, err).Code)
	_, err = k.Secrets().Get(t.Context(), key(production, "foreign"))
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, k.Secrets().Delete(t.Context(), key(production, "foreign"), byTest)).Code)
	for _, ns := range []string{"default", "kube-system", kubetest.AgentNamespace, "nowhere"} {
		_, err = k.Secrets().Get(t.Context(), key(ns, "x"))
		assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code, ns)
		_, err = k.Secrets().List(t.Context(), ns)
		assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code, ns)
	}
}

func TestSecret_Types(t *testing.T) {
	k := asAgent(t, kubetest.ControlPlane(t))
	cert, certKey := certificate(t)
	_, otherKey := certificate(t)
	tls, docker := "kubernetes.io/tls", "kubernetes.io/dockerconfigjson"
	for name, c := range map[string]struct {
		spec  runnerapi.SecretSpec
		field string
	}{
		"tls":                     {runnerapi.SecretSpec{Type: tls, Data: map[string]string{"tls.crt": cert, "tls.key": certKey}}, ""},
		"tls-without-key":         {runnerapi.SecretSpec{Type: tls, Data: map[string]string{"tls.crt": cert}}, "data.tls.key"},
		"tls-with-other-key":      {runnerapi.SecretSpec{Type: tls, Data: map[string]string{"tls.crt": cert, "tls.key": otherKey}}, "data.tls.crt"},
		"docker":                  {runnerapi.SecretSpec{Type: docker, Data: map[string]string{".dockerconfigjson": `{"auths":{"r.example.com":{}}}`}}, ""},
		"docker-not-json":         {runnerapi.SecretSpec{Type: docker, Data: map[string]string{".dockerconfigjson": `hunter2`}}, "data..dockerconfigjson"},
		"docker-empty":            {runnerapi.SecretSpec{Type: docker}, "data..dockerconfigjson"},
		"unknown-type":            {runnerapi.SecretSpec{Type: "bootstrap.kubernetes.io/token"}, "type"},
		"key-that-is-not-allowed": {runnerapi.SecretSpec{Data: map[string]string{"a/b": "x"}}, "data.a/b"},
	} {
		_, err := k.Secrets().Set(t.Context(), key(production, name), c.spec, byTest)
		if c.field == "" {
			require.NoError(t, err, name)
			continue
		}
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeInvalid, p.Code, name)
		assert.Equal(t, c.field, p.Field, name)
		assert.NotContains(t, p.Error(), "hunter2")
		assert.NotEmpty(t, p.Fix, name)
	}
	_, err := k.Secrets().Set(t.Context(), key(production, "tls"), runnerapi.SecretSpec{Data: map[string]string{"a": "b"}}, byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Equal(t, "type", p.Field)
	assert.Contains(t, p.Fix, "delete the secret first")
}

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key, err := selfsigned.PEM("example.com")
	require.NoError(t, err)
	return cert, key
}

func TestNamespace_Lifecycle(t *testing.T) {
	env, k := controlPlane(t)
	ns, err := k.Namespaces().Set(t.Context(), "staging", runnerapi.NamespaceSpec{Labels: map[string]string{"team": "shop", "tier": "2"}}, byTest)
	require.NoError(t, err)
	assert.Equal(t, "shop", ns.Labels["team"])
	assert.Equal(t, "Active", ns.Phase)
	_, err = k.Secrets().Set(t.Context(), key("staging", "s"), runnerapi.SecretSpec{Data: map[string]string{"a": "b"}}, byTest)
	require.NoError(t, err, "the agent has its rights there at once")

	ns, err = k.Namespaces().Set(t.Context(), "staging", runnerapi.NamespaceSpec{Labels: map[string]string{"team": "web"}}, byTest)
	require.NoError(t, err)
	late := byTest
	late.Answered = func(context.Context) (bool, error) { return true, nil }
	is, err := k.Namespaces().Set(t.Context(), "staging", runnerapi.NamespaceSpec{Labels: map[string]string{"team": "shop"}}, late)
	require.NoError(t, err)
	assert.Equal(t, ns, is, "another replica carried it out before the last command came")
	assert.Equal(t, "web", ns.Labels["team"])
	assert.NotContains(t, ns.Labels, "tier", "labels that are no longer asked for go")

	list, err := k.Namespaces().List(t.Context())
	require.NoError(t, err)
	var names []string
	for _, ns := range list {
		names = append(names, ns.Name)
	}
	assert.Subset(t, names, []string{"production", "staging"})
	assert.NotContains(t, names, "default")

	dry := byTest
	dry.DryRun = true
	_, err = k.Namespaces().Set(t.Context(), "imagined", runnerapi.NamespaceSpec{}, dry)
	require.NoError(t, err)
	_, err = k.Namespaces().Get(t.Context(), "imagined")
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)

	held := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "staging", Name: "held", Finalizers: []string{"example.com/held"}}}
	held.Spec.Image = "example.com/web:1"
	require.NoError(t, env.Client.Create(t.Context(), held))
	require.NoError(t, k.Namespaces().Delete(t.Context(), "staging", dry))
	require.NoError(t, k.Namespaces().Delete(t.Context(), "staging", byTest))
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	assert.False(t, held.DeletionTimestamp.IsZero(), "Apps are deleted before their namespace is")
	left := &corev1.Namespace{}
	err = env.Client.Get(t.Context(), client.ObjectKey{Name: "staging"}, left)
	assert.True(t, apierrors.IsNotFound(err) || !left.DeletionTimestamp.IsZero())
}

func TestNamespace_ForeignUntouched(t *testing.T) {
	env, k := controlPlane(t)
	for _, name := range []string{"kube-system", "kube-new", "default", kubetest.AgentNamespace} {
		_, err := k.Namespaces().Set(t.Context(), name, runnerapi.NamespaceSpec{Adopt: true}, byTest)
		assert.Equal(t, runnerapi.CodeForbidden, problemOf(t, err).Code, name)
		assert.Equal(t, runnerapi.CodeForbidden, problemOf(t, k.Namespaces().Delete(t.Context(), name, byTest)).Code, name)
	}
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}))
	_, err := k.Namespaces().Set(t.Context(), "theirs", runnerapi.NamespaceSpec{}, byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Contains(t, p.Fix, "adopt")
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, k.Namespaces().Delete(t.Context(), "theirs", byTest)).Code)

	_, err = k.Namespaces().Set(t.Context(), "theirs", runnerapi.NamespaceSpec{Adopt: true}, byTest)
	require.NoError(t, err)
	_, err = k.Namespaces().Set(t.Context(), "theirs", runnerapi.NamespaceSpec{}, byTest)
	require.NoError(t, err, "once adopted it stays so")
	p = problemOf(t, k.Namespaces().Delete(t.Context(), "theirs", byTest))
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Contains(t, p.Detail, "was there before")

	_, err = k.Namespaces().Set(t.Context(), "labelled", runnerapi.NamespaceSpec{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}, byTest)
	assert.Equal(t, "labels.pod-security.kubernetes.io/enforce", problemOf(t, err).Field)
}

// TestRights_Bounded tries with the agent's own credentials what a
// hijacked agent would try.
func TestRights_Bounded(t *testing.T) {
	env := kubetest.ControlPlane(t)
	agent, err := client.New(env.Agent, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bystander"}}))
	bind := func(namespace, role string) error {
		return agent.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grab-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kubetest.AgentNamespace, Name: "pipeops-agent"}},
		})
	}
	bindOther := func(subjects ...rbacv1.Subject) error {
		return agent.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: production, GenerateName: "grab-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pipeops-agent-namespace"},
			Subjects:   subjects,
		})
	}
	const podSecurity = "pod-security.kubernetes.io/enforce"
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "strict", Labels: map[string]string{podSecurity: "restricted", "app.kubernetes.io/managed-by": "pipeops"},
	}}))
	secure := func(namespace, level string) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, podSecurity, level)
		return agent.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", patch))
	}
	token := func(namespace, account string) error {
		return agent.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "grab", Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
			Type:       corev1.SecretTypeServiceAccountToken,
		})
	}
	label := func(namespace string) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		return agent.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"pipeops"}}}`)))
	}
	for what, try := range map[string]func() error{
		"read all secrets":            func() error { return agent.List(t.Context(), &corev1.SecretList{}) },
		"read secrets of a bystander": func() error { return agent.List(t.Context(), &corev1.SecretList{}, client.InNamespace("bystander")) },
		"read another Secret of its own namespace": func() error {
			return agent.Get(t.Context(), client.ObjectKey{Namespace: "pipeops", Name: "release-credentials"}, &corev1.Secret{})
		},
		"bind cluster-admin":                 func() error { return bind(production, "cluster-admin") },
		"bind its role in kube-system":       func() error { return bind("kube-system", "pipeops-agent-namespace") },
		"bind its role in a bystander":       func() error { return bind("bystander", "pipeops-agent-namespace") },
		"bind its role in its own namespace": func() error { return bind("pipeops", "pipeops-agent-namespace") },
		"bind its role to somebody else": func() error {
			return bindOther(rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"})
		},
		"bind its role to an account of that name elsewhere": func() error {
			return bindOther(rbacv1.Subject{Kind: "ServiceAccount", Namespace: production, Name: "pipeops-agent"})
		},
		"loosen a namespace's pod security":   func() error { return secure("strict", `"privileged"`) },
		"take a namespace's pod security off": func() error { return secure("strict", "null") },
		"set a namespace's pod security":      func() error { return secure(production, `"privileged"`) },
		"make a privileged namespace": func() error {
			return agent.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "loose", Labels: map[string]string{podSecurity: "privileged"}}})
		},
		"have a token made in a managed namespace": func() error { return token(production, "default") },
		"have its own token made":                  func() error { return token("pipeops", "pipeops-agent") },
		"take over kube-system":                    func() error { return label("kube-system") },
		"take over default":                        func() error { return label("default") },
		"delete a bystander": func() error {
			return agent.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bystander"}})
		},
		"run a pod": func() error {
			return agent.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "p"}})
		},
		"change a node": func() error { return agent.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}) },
		"make a cluster role": func() error {
			return agent.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}})
		},
	} {
		assert.True(t, apierrors.IsForbidden(try()), "%s: %v", what, try())
	}
	require.NoError(t, bind(production, "pipeops-agent-namespace"), "what it does have to do it may")
	require.NoError(t, label("strict"), "a namespace that says how secure its pods are can be the agent's")
}

func TestIdentityStore(t *testing.T) {
	env := kubetest.ControlPlane(t)
	store := asAgent(t, env).IdentityStore()
	assert.Equal(t, "secret pipeops/pipeops-agent-identity", store.String())
	other := asAgent(t, env).IdentityStore()
	parts, none, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Nil(t, parts)
	save := func(by kube.Identity, value, version string) bool {
		saved, err := by.Save(t.Context(), map[string][]byte{"key": []byte(value)}, version)
		require.NoError(t, err)
		return saved
	}
	assert.True(t, save(store, "1", none))
	assert.False(t, save(other, "2", none), "of two replicas that begin, one wins")
	_, first, err := other.Load(t.Context())
	require.NoError(t, err)
	assert.True(t, save(other, "3", first))
	assert.False(t, save(store, "4", first), "of two that renew, one wins")
	parts, _, err = store.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"key": []byte("3")}, parts)
}

func TestFacts(t *testing.T) {
	env := kubetest.Full(t)
	k := asAgent(t, env)
	uid, err := k.ClusterUID(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, uid)

	f, err := k.Cluster().Facts(t.Context())
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.\d+\.`, f.KubernetesVersion)
	assert.Equal(t, "kubernetes", f.Distribution)
	assert.Equal(t, runnerapi.NodeCount{Total: 1, Ready: 1}, f.Nodes)
	assert.Positive(t, f.CPU.Allocatable)
	assert.Positive(t, f.Memory.Allocatable)
	assert.Positive(t, f.Pods.Allocatable)

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, env.Cluster.WaitMetrics(ctx))
	require.Eventually(t, func() bool {
		f, err = k.Cluster().Facts(t.Context())
		return err == nil && f.CPU.Used != nil
	}, 3*time.Minute, 100*time.Millisecond)
	assert.Positive(t, *f.Memory.Used)
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.MatchingFields{"status.phase": "Running"}))
	assert.Len(t, pods.Items, f.Pods.Running)
	c, err := k.Cluster().Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, f.Nodes, c.Nodes)
}

func TestTransientErrors(t *testing.T) {
	assert.True(t, kube.Passing(fmt.Errorf("x: %w", apierrors.NewServiceUnavailable("starting"))))
	assert.True(t, kube.Passing(fmt.Errorf("x: %w", context.DeadlineExceeded)))
	assert.False(t, kube.Passing(apierrors.NewForbidden(corev1.Resource("secrets"), "x", errors.New("no"))))
	assert.False(t, kube.Passing(nil))
}

// TestStore_LimitedToNamespaces has an agent that was given one namespace keep out of
// another, though that carries the agent's label too.
func TestStore_LimitedToNamespaces(t *testing.T) {
	env := kubetest.ControlPlane(t)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "beyond", Labels: objectmeta.Labels()}}))
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace, Namespaces: []string{production}})
	require.NoError(t, err)

	_, err = k.Secrets().List(t.Context(), production)
	require.NoError(t, err)
	_, err = k.Secrets().List(t.Context(), "beyond")
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)

	all, err := k.Namespaces().List(t.Context())
	require.NoError(t, err)
	assert.False(t, slices.ContainsFunc(all, func(ns runnerapi.Namespace) bool { return ns.Name != production }))

	for _, name := range []string{production, "beyond", "another"} {
		_, err = k.Namespaces().Set(t.Context(), name, runnerapi.NamespaceSpec{}, byTest)
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeForbidden, p.Code)
		assert.Contains(t, p.Detail, "limited to the namespaces "+production)
		assert.Equal(t, runnerapi.CodeForbidden, problemOf(t, k.Namespaces().Delete(t.Context(), name, byTest)).Code)
	}
	_, err = k.Cluster().Facts(t.Context())
	require.NoError(t, err)
}
