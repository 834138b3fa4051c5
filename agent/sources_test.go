package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// turnSourcesOn applies sources.yaml, and waits until the agent may use it.
func turnSourcesOn(t *testing.T, env *kubetest.Env) {
	t.Helper()
	manifest, err := deployments.Sources()
	require.NoError(t, err)
	kubectl := func(args ...string) {
		cmd := env.Cluster.KubectlCommand(context.Background(), append(args, "-f", "-")...)
		cmd.Stdin = strings.NewReader(string(manifest))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	kubectl("apply", "--server-side")
	t.Cleanup(func() { kubectl("delete") })
	await.Until(t, "the agent may see sources", func() bool {
		_, err := env.Cluster.Kubectl(t.Context(), "get", "sources.pipeops.io", "-A", "--as=system:serviceaccount:pipeops:pipeops-agent")
		return err == nil
	})
}

// TestSource_SuspendedAfterRevoke has a real agent hear of it by the control plane's
// refresh: its heartbeats are far apart.
func TestSource_SuspendedAfterRevoke(t *testing.T) {
	env := kubetest.ControlPlane(t)
	turnSourcesOn(t, env)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(`rules: [{name: git, commands: ["*", put-source]}]`), 0o600))
	p := planetest.Start(t, func(c *controlplane.Config) { c.HeartbeatInterval = 10 * time.Minute })
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) {
		c.PolicyFile, c.FetchAddresses = policy, gitserver.Guard.Allowed
	})
	id := p.AwaitOnline(t, time.Time{})
	ci, ops := visitor(t, p, "ci", "", id), visitor(t, p, "ops", "", id)

	git := gitserver.Start(t, "reader", "correct horse")
	repo := git.Create(t, "shop/deploy.git")
	first := repo.Commit(map[string]string{"web.yaml": "image: registry.example.com/web:1\n"})
	_, err := ops.Namespaces().Set(t.Context(), "followed", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "followed", Name: "git-deploy"}, StringData: map[string]string{
			"url": git.HTTPS.URL + "/shop", "username": "reader", "password": "correct horse", "ca.crt": string(git.CA()),
		},
	}))
	web, api := runnerapi.Key{Namespace: "followed", Name: "web"}, runnerapi.Key{Namespace: "followed", Name: "api"}
	spec := runnerapi.SourceSpec{URL: git.URL("shop/deploy.git"), Type: runnerapi.SourceApp, Path: "web.yaml", Credentials: "git-deploy"}
	for _, key := range []runnerapi.Key{web, api} {
		_, err = ci.Sources().Set(t.Context(), key, spec, runnerapi.WriteOptions{})
		require.NoError(t, err)
	}
	becomes := func(key runnerapi.Key, what string, so func(runnerapi.Source) bool) {
		t.Helper()
		await.Until(t, "source "+key.String()+" "+what, func() bool {
			s, err := ops.Sources().Get(t.Context(), key)
			require.NoError(t, err)
			return so(s)
		})
	}
	applied := func(commit string) func(runnerapi.Source) bool {
		return func(s runnerapi.Source) bool { return s.Status.Commit == commit && s.Status.Phase.Applied() }
	}
	suspended := func(s runnerapi.Source) bool {
		return s.Status.Phase == runnerapi.SourceSuspended && s.Status.Suspension != nil && s.Status.Suspension.Runner == "ci"
	}
	becomes(web, "is applied", applied(first))
	becomes(api, "is applied", applied(first))

	require.NoError(t, p.Runners.Revoke(t.Context(), "ci"))
	becomes(web, "is suspended", suspended)
	becomes(api, "is suspended", suspended)
	second := repo.Commit(map[string]string{"web.yaml": "image: registry.example.com/web:2\n"})
	_, err = ops.Sources().Sync(t.Context(), web, runnerapi.WriteOptions{})
	require.NoError(t, err)
	becomes(web, "is still suspended", suspended)
	running, err := ops.Apps().Get(t.Context(), web)
	require.NoError(t, err)
	assert.Equal(t, "registry.example.com/web:1", running.Spec.Image, "what runs goes on running")

	_, err = ops.Sources().Set(t.Context(), web, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	becomes(web, "goes on in the other Runner's name", func(s runnerapi.Source) bool { return applied(second)(s) && s.Runner == "ops" })
	_, err = p.Runners.Issue(t.Context(), operators.RunnerOptions{Name: "ci", TTL: time.Hour, Replace: true})
	require.NoError(t, err)
	_, err = ops.Sources().Sync(t.Context(), api, runnerapi.WriteOptions{})
	require.NoError(t, err)
	becomes(api, "is not resumed by a Runner that was made anew", suspended)
}
