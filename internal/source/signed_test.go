package source_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestSource_Signed demands signatures by the policy, which applies at the next look.
func TestSource_Signed(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	unsigned := repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:1\n", "set/one.yaml": configMapFile("one", "first")})
	ann := repo.Signed()
	demand := func(key string) { p.allow(allowing + "    signers: ['" + key + "']\n") }
	refused := func(name, code, text string) {
		t.Helper()
		status := p.sync(name)
		require.NotNil(t, status.Error)
		assert.Equal(t, code, status.Error.Code)
		assert.Contains(t, status.Error.Message, text)
		assert.Contains(t, status.Error.Fix, `signers of rule "git" in a test`)
		assert.Equal(t, runnerapi.SourceFailed, status.Phase)
	}
	specs := map[string]runnerapi.SourceSpec{
		"web": {Type: runnerapi.SourceApp, Path: "app.yaml"}, "set": {Type: runnerapi.SourceManifests, Path: "set"},
	}
	for name, spec := range specs {
		p.put(name, spec)
		require.Equal(t, unsigned, p.settled(name).Commit)
	}
	demand(ann)
	for name, spec := range specs {
		refused(name, "commit_unsigned", "is not signed")
		assert.Equal(t, unsigned, p.settled(name).Commit, "what was applied before stays")
		opts := runner
		opts.DryRun = true
		spec.URL, spec.Credentials = p.git.URL("shop/deploy.git"), "git-deploy"
		_, err := p.keeper.Set(t.Context(), p.key(name), spec, opts)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		assert.Equal(t, "commit_unsigned", string(known.Code))
	}
	signed := repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:2\n", "set/one.yaml": configMapFile("one", "second")})
	for name := range specs {
		status := p.sync(name)
		require.Nil(t, status.Error, name)
		assert.Equal(t, signed, status.Commit)
	}
	eve := repo.Signed()
	demand(eve)
	for name := range specs { // the commit is known, and its signer is no longer listed
		refused(name, "signer_not_listed", "which is not listed")
	}
	p.allow(allowing)
	assert.Nil(t, p.sync("web").Error)
}

// TestSource_SignedBuild expects nothing to be built of a commit unless the rules for the source
// and for the build accept it. A tag's signature is enough.
func TestSource_SignedBuild(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	commit := repo.Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	ann := repo.Signed()
	repo.Git("tag", "-s", "-m", "a release", "v1", commit)
	repo.Git("push", "--quiet", "--tags", "origin")
	eve := repo.Signed()
	image := runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}
	for name, spec := range map[string]runnerapi.SourceSpec{
		"file": {Type: runnerapi.SourceApp, Path: "app.yaml", Build: &runnerapi.SourceBuild{BuildTemplate: image}},
		"spec": {Type: runnerapi.SourceApp, AppSpec: "replicas: 1\n", Build: &runnerapi.SourceBuild{BuildTemplate: image}},
	} {
		p.allow(`rules: [{name: builds, commands: [put-build], signers: ['` + eve + `']}, {name: git, commands: ["*", put-source], signers: ['` + ann + `']}]`)
		spec.Ref.Tag = "v1"
		before := builds.count()
		p.put(name, spec)
		status := p.settled(name)
		require.NotNil(t, status.Error)
		assert.Equal(t, "signer_not_listed", status.Error.Code)
		assert.Contains(t, status.Error.Fix, `rule "builds"`)
		p.allow(`rules: [{name: builds, commands: [put-build], signers: ['` + ann + `']}, {name: git, commands: ["*", put-source], signers: ['` + ann + `']}]`)
		assert.Equal(t, runnerapi.SourceBuilding, p.sync(name).Phase)
		assert.Equal(t, before+1, builds.count())
		key := runnerapi.Source{Namespace: p.namespace, Name: name, Spec: spec}.BuildKey()
		b, err := builds.Get(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, runnerapi.GitRef{Commit: commit}, b.Spec.Git.Ref, "the build gets the commit that was checked")
	}
}
