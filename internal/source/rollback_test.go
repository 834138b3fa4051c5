package source_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// rollback goes back, and waits until the agent has looked.
func (p *place) rollback(name, to string) runnerapi.SourceStatus {
	p.t.Helper()
	opts := runner
	opts.Caller.RequestID = time.Now().Format(time.RFC3339Nano)
	_, err := p.keeper.Rollback(p.t.Context(), p.key(name), runnerapi.SourceRollback{Commit: to}, opts)
	require.NoError(p.t, err)
	return p.settled(name)
}

func commits(history []runnerapi.SourceCommit) (all []string) {
	for _, c := range history {
		all = append(all, c.Commit)
	}
	return all
}

// TestSource_RollsBackApp holds an App at an earlier commit until there is another one.
func TestSource_RollsBackApp(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	push := func(n int) string {
		return repo.Commit(map[string]string{"app.yaml": fmt.Sprintf("image: registry.example.com/web:%d\n", n)})
	}
	image := func() string {
		t.Helper()
		app, err := p.engine.Get(t.Context(), p.key("web"))
		require.NoError(t, err)
		return strings.TrimPrefix(app.Spec.Image, "registry.example.com/web:")
	}
	one := push(1)
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml"})
	require.Equal(t, one, p.settled("web").Commit)
	_, err := p.keeper.Rollback(t.Context(), p.key("web"), runnerapi.SourceRollback{}, runner)
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Conflict, known.Code, "there is none before")
	two := push(2)
	require.Equal(t, two, p.sync("web").Commit)
	three := push(3)
	status := p.sync("web")
	require.Equal(t, []string{three, two, one}, commits(status.History))
	assert.Equal(t, status.Revision, status.History[0].Revision)

	dry := runner
	dry.DryRun = true
	tried, err := p.keeper.Rollback(t.Context(), p.key("web"), runnerapi.SourceRollback{}, dry)
	require.NoError(t, err)
	assert.Equal(t, two, tried.Status.Hold.Commit)
	assert.Equal(t, "3", image())

	status = p.rollback("web", "")
	require.Nil(t, status.Error)
	require.NotNil(t, status.Hold)
	assert.Equal(t, two, status.Hold.Commit)
	assert.Equal(t, three, status.Hold.After)
	assert.Equal(t, two, status.Commit)
	assert.Equal(t, "2", image())
	status = p.rollback("web", "")
	assert.Equal(t, one, status.Commit, "a second one goes further back")
	status = p.rollback("web", two[:9])
	assert.Equal(t, two, status.Commit)
	assert.Equal(t, []string{two, one, two, three, two, one}, commits(status.History))
	for _, to := range []string{strings.Repeat("0", 40), "0000000"} {
		_, err = p.keeper.Rollback(t.Context(), p.key("web"), runnerapi.SourceRollback{Commit: to}, runner)
		require.ErrorAs(t, err, &known)
		assert.Equal(t, "commit", known.Field)
	}

	// Other looks, by another replica too, leave it there.
	p.keeper.Look(t.Context(), p.key("web"))
	assert.Equal(t, two, p.settled("web").Commit)
	four := push(4)
	p.soon("web")
	p.keeper.Look(t.Context(), p.key("web"))
	status = p.settled("web")
	assert.Equal(t, four, status.Commit, "a new commit ends it")
	assert.Nil(t, status.Hold)
	assert.Equal(t, "4", image())
	status = p.rollback("web", "")
	assert.Equal(t, two, status.Commit)
	status = p.sync("web")
	assert.Equal(t, four, status.Commit, "source sync ends it")
	assert.Nil(t, status.Hold)
	require.NotNil(t, p.rollback("web", "").Hold)
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml", Interval: "1h"})
	status = p.settled("web")
	assert.Equal(t, four, status.Commit, "source set ends it")
	assert.Nil(t, status.Hold)
}

// soon lets the next look ask the repository.
func (p *place) soon(name string) {
	p.t.Helper()
	write, err := p.keeper.Held(p.t.Context(), p.key(name))
	require.NoError(p.t, err)
	s, err := p.keeper.Get(p.t.Context(), p.key(name))
	require.NoError(p.t, err)
	s.Status.CheckedAt = time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	require.NoError(p.t, write(s.Status))
}

// TestSource_RollsBackManifests meets a server that does not give the earlier commit, and prunes.
func TestSource_RollsBackManifests(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	first := repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	p.put("set", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Prune: true})
	require.Equal(t, first, p.settled("set").Commit)
	repo.Git("checkout", "--quiet", "--orphan", "rewritten") // nothing leads to the first commit any more
	second := repo.Commit(map[string]string{"two.yaml": configMapFile("two", "second")})
	require.Equal(t, second, p.sync("set").Commit)
	status := p.rollback("set", "")
	require.NotNil(t, status.Error)
	assert.Equal(t, "ref_not_found", status.Error.Code)
	assert.Contains(t, status.Error.Message, "cannot be rolled back to "+first)
	assert.Contains(t, status.Error.Fix, "uploadpack.allowAnySHA1InWant")
	assert.Equal(t, second, status.Commit, "what was applied stays")
	repo.Config("uploadpack.allowAnySHA1InWant", "true")
	status = p.rollback("set", "")
	require.Nil(t, status.Error)
	assert.Equal(t, first, status.Commit)
	assert.Equal(t, 1, status.Objects)

	// Another replica that was held up with the first command finds that it was carried out.
	third := repo.Commit(map[string]string{"two.yaml": configMapFile("two", "third")})
	require.Equal(t, third, p.sync("set").Commit)
	opts := runner
	opts.Command = "command-1"
	_, err := p.keeper.Rollback(t.Context(), p.key("set"), runnerapi.SourceRollback{}, opts)
	require.NoError(t, err)
	require.Equal(t, first, p.settled("set").Commit)
	require.Equal(t, third, p.sync("set").Commit)
	_, err = p.keeper.Rollback(t.Context(), p.key("set"), runnerapi.SourceRollback{}, opts)
	require.NoError(t, err)
	assert.Equal(t, third, p.settled("set").Commit)

	p.put("set", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Suspend: true})
	_, err = p.keeper.Rollback(t.Context(), p.key("set"), runnerapi.SourceRollback{}, runner)
	require.ErrorContains(t, err, "is suspended")
}

// TestSource_RollsBackBuild has the image of the earlier commit built, and holds the source there.
func TestSource_RollsBackBuild(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.allow(`rules: [{name: git, commands: ["*", put-source, put-build]}]`)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	commit := func(n int) string {
		return repo.Commit(map[string]string{"app.yaml": fmt.Sprintf("replicas: %d\n", n)})
	}
	spec := runnerapi.SourceSpec{
		Type: runnerapi.SourceApp, Path: "app.yaml", Build: &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}},
	}
	first := commit(1)
	p.put("web", spec)
	builds.finish(t, p.settled("web"))
	p.reaches("web", first, func() {})
	second := commit(2)
	builds.finish(t, p.sync("web"))
	p.reaches("web", second, func() {})
	status := p.rollback("web", "")
	require.Equal(t, runnerapi.SourceBuilding, status.Phase)
	assert.Equal(t, first, status.Build.Commit)
	builds.finish(t, status)
	p.reaches("web", first, func() {})
	status = p.settled("web")
	require.NotNil(t, status.Hold)
	assert.Equal(t, second, status.Hold.After)
}

// finish ends the build of a source.
func (e *endless) finish(t *testing.T, s runnerapi.SourceStatus) {
	t.Helper()
	require.Equal(t, runnerapi.SourceBuilding, s.Phase, s.Error)
	e.Lock()
	defer e.Unlock()
	b := e.under[s.Build.Key()]
	b.Status = runnerapi.BuildStatus{Phase: runnerapi.BuildSucceeded, Image: "registry.example.com/shop/web@sha256:" + strings.Repeat("a", 64)}
	e.under[s.Build.Key()] = b
}

// TestSource_RollsBackWithinPolicy refuses a commit that the policy does not accept any more.
func TestSource_RollsBackWithinPolicy(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:1\n"})
	ann := repo.Signed()
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml"})
	require.Nil(t, p.settled("web").Error)
	signed := repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:2\n"})
	require.Equal(t, signed, p.sync("web").Commit)
	p.allow(allowing + "    signers: ['" + ann + "']\n")
	status := p.rollback("web", "")
	require.NotNil(t, status.Error)
	assert.Equal(t, "commit_unsigned", status.Error.Code)
	assert.Equal(t, signed, status.Commit, "what was applied stays")
	p.allow("rules: []")
	status = p.rollback("web", "")
	require.NotNil(t, status.Error)
	assert.Equal(t, "policy_denied", status.Error.Code)
}
