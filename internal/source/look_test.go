package source_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestLookAt_BringsPush has a source that is looked at once a day otherwise.
func TestLookAt_BringsPush(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	p.allow(`
rules:
  - name: git
    runners: [` + runner.Caller.Runner + `]
    commands: [put-source, apply-manifests]
    kinds: [ConfigMap]
`)
	repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Interval: "24h"})
	require.Nil(t, p.settled("web").Error)
	second := repo.Commit(map[string]string{"one.yaml": configMapFile("one", "second")})
	mark := func() string {
		t.Helper()
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: source.Group + "/" + source.Version, Kind: source.Kind}}
		require.NoError(t, p.env.Client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "web"}, o))
		return o.Annotations[objectmeta.Look]
	}
	request := func(number int64, key runnerapi.Key, by, commit string) {
		t.Helper()
		p.keeper.LookAt([]source.Look{{Number: number, Source: key, Runner: by, Commit: commit}})
		await.Until(t, "the look is acknowledged", func() bool { return p.keeper.Acknowledged() == number })
		assert.Zero(t, p.keeper.Acknowledged(), "it is acknowledged once")
	}
	request(1, p.key("web"), "stranger", second)
	assert.Empty(t, mark(), "another Runner's webhook, which may not sync it")
	request(2, p.key("none"), runner.Caller.Runner, second)
	request(3, runnerapi.Key{Namespace: "kube-system", Name: "web"}, runner.Caller.Runner, second)

	request(4, p.key("web"), runner.Caller.Runner, second)
	p.reaches("web", second, func() {})
	assert.Equal(t, "4", mark())
	request(5, p.key("web"), runner.Caller.Runner, second)
	assert.Equal(t, "4", mark(), "it has that commit")

	p.allow(`
rules:
  - name: git
    commands: [put-source, apply-manifests, sync-source]
    kinds: [ConfigMap]
`)
	third := repo.Commit(map[string]string{"one.yaml": configMapFile("one", "third")})
	request(6, p.key("web"), "stranger", "")
	p.reaches("web", third, func() {})
}

// TestLookAt_DuringBuild: the newest commit is built after the build in progress, and not at the
// next interval.
func TestLookAt_DuringBuild(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.allow(`rules: [{name: git, commands: ["*", put-source, put-build]}]`)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	p.put("web", runnerapi.SourceSpec{
		Type: runnerapi.SourceApp, Path: "app.yaml", Interval: "24h", Build: &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}},
	})
	status := p.settled("web")
	second := repo.Commit(map[string]string{"app.yaml": "replicas: 2\n"})
	p.keeper.LookAt([]source.Look{{Number: 1, Source: p.key("web"), Runner: runner.Caller.Runner, Commit: second}})
	await.Until(t, "the push is known", func() bool { return p.keeper.Acknowledged() == 1 })
	builds.finish(t, status)
	await.Until(t, "the second commit is built", func() bool {
		s, err := p.keeper.Get(t.Context(), p.key("web"))
		require.NoError(t, err)
		return s.Status.Build != nil && s.Status.Build.Commit == second
	})
}
