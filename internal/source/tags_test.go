package source_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestSource_FollowsVersions follows the newest tag of a range, and goes back to the one before.
func TestSource_FollowsVersions(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	release := func(n int, tag string, flags ...string) string {
		commit := repo.Commit(map[string]string{"app.yaml": fmt.Sprintf("image: registry.example.com/web:%d\n", n)})
		repo.Git(append([]string{"tag", "-m", "a release", tag}, flags...)...)
		repo.Git("push", "--quiet", "--tags", "origin")
		return commit
	}
	repo.Commit(map[string]string{"README.md": "nothing was released\n"})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml", Ref: runnerapi.GitRef{Semver: ">=1.2.0 <2"}})
	status := p.settled("web")
	require.NotNil(t, status.Error)
	assert.Equal(t, "ref_not_found", status.Error.Code)
	assert.Contains(t, status.Error.Message, "the repository has 0 tags")

	ann := repo.Signed()
	one := release(1, "v1.2.0", "-s")
	release(2, "v2.0.0")
	p.allow(allowing + "    signers: ['" + ann + "']\n")
	repo.Unsigned() // the commits from now on; tags are signed by flag
	status = p.sync("web")
	require.Nil(t, status.Error)
	assert.Equal(t, one, status.Commit)
	assert.Equal(t, "v1.2.0", status.Tag)

	three := release(3, "v1.10.0", "-s")
	status = p.sync("web")
	require.Nil(t, status.Error, "the signature of the tag counts")
	assert.Equal(t, three, status.Commit)
	assert.Equal(t, "v1.10.0", status.Tag)
	assert.Equal(t, []string{"v1.10.0", "v1.2.0"}, []string{status.History[0].Tag, status.History[1].Tag})
	four := release(4, "v1.9.0", "-s")
	assert.Equal(t, three, p.sync("web").Commit, "an older version that was tagged later")

	status = p.rollback("web", "")
	require.Nil(t, status.Error)
	assert.Equal(t, one, status.Commit)
	assert.Equal(t, "v1.2.0", status.Tag)
	assert.Equal(t, three, status.Hold.After)
	repo.Git("tag", "-s", "-m", "a release", "v1.11.0", four)
	repo.Git("push", "--quiet", "--tags", "origin")
	p.soon("web")
	p.keeper.Look(t.Context(), p.key("web"))
	status = p.settled("web")
	require.Nil(t, status.Error)
	assert.Nil(t, status.Hold, "a newer version ends it")
	assert.Equal(t, four, status.Commit)
	assert.Equal(t, "v1.11.0", status.Tag)

	repo.Git("tag", "-s", "-m", "a release", "v1.11.1", four)
	repo.Git("push", "--quiet", "--tags", "origin")
	status = p.sync("web")
	assert.Equal(t, four, status.Commit)
	assert.Equal(t, "v1.11.1", status.Tag, "the same commit by a newer tag")
}

// TestSource_BuildsVersions keeps the tag while its image is built.
func TestSource_BuildsVersions(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.allow(`rules: [{name: git, commands: ["*", put-source, put-build]}]`)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	commit := repo.Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	repo.Git("tag", "1.0.0")
	repo.Git("push", "--quiet", "--tags", "origin")
	p.put("web", runnerapi.SourceSpec{
		Type: runnerapi.SourceApp, Path: "app.yaml", Ref: runnerapi.GitRef{Semver: "1.x"},
		Build: &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}},
	})
	status := p.settled("web")
	builds.finish(t, status)
	assert.Equal(t, "1.0.0", status.Build.Tag)
	repo.Git("tag", "1.1.0", repo.Commit(map[string]string{"app.yaml": "replicas: 2\n"}))
	repo.Git("push", "--quiet", "--tags", "origin")
	p.reaches("web", commit, func() {})
	assert.Equal(t, "1.0.0", p.settled("web").Tag)
}
