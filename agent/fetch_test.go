package agent_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestPolicy_FetchHosts covers charts, repositories and build contexts, from the moment that the
// policy changes.
func TestPolicy_FetchHosts(t *testing.T) {
	env, p := kubetest.ControlPlane(t), planetest.Start(t)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(hosts string) {
		text := hosts + "rules: [{name: fetch, commands: ['*', put-release, put-source, put-build], kinds: [ConfigMap]}]\n"
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("fetchHosts: [git.example.com]\n")
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) {
		c.PolicyFile, c.BuildImage, c.FetchAddresses = file, "registry.example.com/builder:1", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	ci := visitor(t, p, "ci", "", p.AwaitOnline(t, time.Time{}))
	key := runnerapi.Key{Namespace: "fetched", Name: "web"}
	_, err := ci.Namespaces().Set(t.Context(), key.Namespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	ns := &corev1.Namespace{}
	require.NoError(t, env.Client.Get(t.Context(), types.NamespacedName{Name: key.Namespace}, ns))
	labelled := ns.DeepCopy()
	labelled.Labels[build.Allowed] = build.AllowedValue
	require.NoError(t, env.Client.Patch(t.Context(), labelled, client.MergeFrom(ns)))

	const nothing = "https://127.0.0.1:1/shop/web.git"
	refused := func(put func() error) *runnerapi.Error {
		t.Helper()
		e := &runnerapi.Error{}
		require.ErrorAs(t, put(), &e)
		return e
	}
	release := func() error {
		_, err := ci.Releases().Deploy(t.Context(), key, runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Repository: "https://127.0.0.1:1", Name: "web"}}, runnerapi.WriteOptions{})
		return err
	}
	follow := func() error {
		_, err := ci.Sources().Set(t.Context(), key, runnerapi.SourceSpec{URL: nothing, Type: runnerapi.SourceApp, Path: "app.yaml"}, runnerapi.WriteOptions{})
		return err
	}
	start := func() error {
		_, err := ci.Builds().Run(t.Context(), key, runnerapi.BuildSpec{
			Git: runnerapi.BuildGit{URL: nothing, Credentials: "none"}, BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"},
		}, runnerapi.WriteOptions{})
		return err
	}
	for field, put := range map[string]func() error{"chart": release, "url": follow, "git.url": start} {
		e := refused(put)
		assert.Equal(t, field, e.Field)
		assert.Contains(t, e.Detail, `fetchHosts in the customer's policy does not list the host "127.0.0.1"`)
		assert.Contains(t, e.Fix, "fetchHosts in "+file)
	}

	write("")
	await.Until(t, "the new policy to be in force", func() bool { return refused(follow).Field != "url" })
	assert.Contains(t, refused(release).Detail, "connection refused")
	assert.Equal(t, runnerapi.CodeNotSupported, refused(follow).Code, "it got further: sources are not turned on here")
	assert.Equal(t, "git.credentials", refused(start).Field)
}
