package source_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// stages pushes what several sources apply, each of its folder.
func stages(repo *gitserver.Repository, value string) string {
	files := map[string]string{}
	for _, name := range []string{"staging", "prod", "last"} {
		files[name+"/one.yaml"] = configMapFile(name, value)
	}
	return repo.Commit(files)
}

// staging and prod look for commits once a day unless they are woken.
var staging = runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "staging", Interval: "24h"}

func prod(from, after string) runnerapi.SourceSpec {
	return runnerapi.SourceSpec{
		Type: runnerapi.SourceManifests, Path: "prod", Interval: "24h", Promote: &runnerapi.SourcePromotion{From: from, After: after},
	}
}

// becomes waits until the status of a source is as wanted.
func (p *place) becomes(name string, meanwhile func(), wanted func(*assert.CollectT, runnerapi.SourceStatus)) runnerapi.SourceStatus {
	p.t.Helper()
	var status runnerapi.SourceStatus
	require.EventuallyWithT(p.t, func(c *assert.CollectT) {
		meanwhile()
		s, err := p.keeper.Get(p.t.Context(), p.key(name))
		if assert.NoError(c, err) {
			wanted(c, s.Status)
		}
		status = s.Status
	}, patience, 100*time.Millisecond)
	return status
}

// TestPromotion_Prompt promotes through two sources, each of which looks at the repository once a
// day.
func TestPromotion_Prompt(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	one := stages(repo, "first")
	p.put("staging", staging)
	p.put("prod", prod("staging", ""))
	last := prod(p.namespace+"/prod", "0s")
	last.Path = "last"
	p.put("last", last)
	for _, name := range []string{"staging", "prod", "last"} {
		p.reaches(name, one, func() {})
	}
	repo.Git("tag", "v1")
	two := stages(repo, "second")
	stages(repo, "third, which no source gets")
	repo.Git("tag", "-f", "v1", two)
	repo.Git("push", "--quiet", "--tags", "origin")
	tagged := staging
	tagged.Ref.Tag = "v1"
	p.put("staging", tagged)
	for _, name := range []string{"staging", "prod", "last"} {
		p.reaches(name, two, func() {})
	}
	status := p.settled("prod")
	assert.Equal(t, "v1", status.Tag, "the tag that the other source follows")
	assert.Equal(t, two, status.Promotion.Commit)
	assert.Equal(t, p.key("staging").String(), status.Promotion.From)
	assert.Empty(t, status.Promotion.Message)
	assert.Equal(t, []string{two, one}, commits(status.History))
	cm, err := p.configMap("prod")
	require.NoError(t, err)
	assert.Equal(t, "second", cm.Data["a"])

	// A rollback holds it until another commit is promoted.
	status = p.rollback("prod", "")
	require.Nil(t, status.Error)
	assert.Equal(t, one, status.Commit)
	assert.Equal(t, two, status.Hold.After)
	three := stages(repo, "fourth")
	p.put("staging", staging)
	p.reaches("prod", three, func() {})
	assert.Nil(t, p.settled("prod").Hold)

	// One that follows a branch again is no longer promoted.
	four := stages(repo, "fifth")
	branch := prod("staging", "")
	branch.Promote = nil
	p.put("prod", branch)
	p.reaches("prod", four, func() {})
	assert.Nil(t, p.settled("prod").Promotion)
}

// TestPromotion_After lets commits be Ready for half an hour first.
func TestPromotion_After(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	p := open(t, clock)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	one := stages(repo, "first")
	p.put("staging", staging)
	require.Equal(t, one, p.settled("staging").Commit)
	p.put("prod", prod("staging", "30m"))
	status := p.settled("prod")
	assert.Equal(t, runnerapi.SourceWaiting, status.Phase)
	assert.Nil(t, status.Error)
	require.NotNil(t, status.Promotion)
	assert.Equal(t, one, status.Promotion.Candidate)
	assert.Contains(t, status.Promotion.Message, status.Promotion.DueAt)
	at := func(text string) time.Time {
		t.Helper()
		parsed, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return parsed
	}
	assert.Equal(t, 30*time.Minute, at(status.Promotion.DueAt).Sub(at(status.Promotion.ReadySince)))
	clock.SetTime(at(status.Promotion.DueAt).Add(-time.Second))
	assert.LessOrEqual(t, p.keeper.Look(t.Context(), p.key("prod")), time.Second)
	assert.Equal(t, runnerapi.SourceWaiting, p.settled("prod").Phase)
	_, err := p.configMap("prod")
	require.Error(t, err, "nothing is applied")
	p.reaches("prod", one, func() { clock.Step(time.Second) })

	// A commit that is not healthy all the time waits again.
	two := stages(repo, "second")
	p.sync("staging")
	status = p.becomes("prod", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.Equal(c, two, s.Promotion.Candidate, "it is looked at though its interval has not passed")
	})
	assert.Equal(t, one, status.Commit)
	first := at(status.Promotion.ReadySince)
	cm, err := p.configMap("staging")
	require.NoError(t, err)
	require.NoError(t, p.env.Client.Delete(t.Context(), cm))
	p.becomes("prod", func() { clock.Step(10 * time.Second) }, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.Empty(c, s.Promotion.ReadySince)
		assert.Contains(c, s.Promotion.Message, "it is Degraded")
	})
	p.sync("staging")
	status = p.becomes("prod", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.NotEmpty(c, s.Promotion.ReadySince)
	})
	assert.True(t, at(status.Promotion.ReadySince).After(first))
	assert.Equal(t, one, status.Commit)

	// The status of the other source may be from before a restart of the agent.
	cm, err = p.configMap("staging")
	require.NoError(t, err)
	require.NoError(t, p.env.Client.Delete(t.Context(), cm))
	p.leads.Store(false)
	clock.SetTime(at(status.Promotion.DueAt))
	p.keeper.Look(t.Context(), p.key("prod"))
	status = p.settled("prod")
	assert.Equal(t, one, status.Commit)
	assert.Contains(t, status.Promotion.Message, "waits until")
	p.leads.Store(true)
	p.keeper.Wake()
	p.sync("staging")
	p.reaches("prod", two, func() { clock.Step(time.Minute) })

	// What was rolled back is promoted as well.
	p.rollback("staging", "")
	p.reaches("prod", one, func() { clock.Step(time.Minute) })

	suspended := staging
	suspended.Suspend = true
	p.put("staging", suspended)
	status = p.becomes("prod", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.Contains(c, s.Promotion.Message, "it is Suspended")
	})
	assert.Nil(t, status.Error)
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("staging"), runner))
	status = p.becomes("prod", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.NotNil(c, s.Error)
	})
	assert.Contains(t, status.Error.Message, "there is no source "+p.key("staging").String())
	assert.Equal(t, one, status.Commit, "what was applied stays")
}

// TestPromotion_Approval promotes what was approved, and no other commit.
func TestPromotion_Approval(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	approve := func(commit string, opts runnerapi.WriteOptions) error {
		_, err := p.keeper.ApprovePromotion(t.Context(), p.key("prod"), runnerapi.CommitApproval{Commit: commit}, opts)
		return err
	}
	waits := func(commit string) {
		t.Helper()
		p.becomes("prod", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
			if assert.NotNil(c, s.Promotion) {
				assert.Equal(c, commit, s.Promotion.Candidate)
				assert.Contains(c, s.Promotion.Message, "is approved")
			}
		})
	}
	one := stages(repo, "first")
	p.put("staging", staging)
	spec := prod("staging", "")
	p.put("prod", spec)
	p.reaches("prod", one, func() {})
	assert.True(t, problem.Is(approve(one, runner), problem.Conflict), "it needs none")
	spec.Promote.Approval = true
	p.put("prod", spec)
	assert.Equal(t, one, p.settled("prod").Commit, "what was promoted stays")
	assert.True(t, problem.Is(approve(one, runner), problem.Conflict), "none waits")

	two := stages(repo, "second")
	p.sync("staging")
	waits(two)
	assert.True(t, problem.Is(approve(one, runner), problem.Conflict), "another one waits")
	require.NoError(t, approve(two, runnerapi.WriteOptions{Caller: runner.Caller, DryRun: true}))
	assert.Equal(t, one, p.settled("prod").Commit)
	three := stages(repo, "third")
	require.NoError(t, approve(two, runner))
	p.reaches("prod", two, func() {})
	p.sync("staging")
	waits(three)
	assert.Equal(t, two, p.settled("prod").Commit)
	assert.True(t, problem.Is(approve(two, runner), problem.Conflict))
	require.NoError(t, approve(three, runner))
	p.reaches("prod", three, func() {})
}

// TestPromotion_NotGiven meets a server that gives only what its refs name.
func TestPromotion_NotGiven(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	p := open(t, clock)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	first := stages(repo, "first")
	p.put("staging", staging)
	require.Equal(t, first, p.settled("staging").Commit)
	p.put("prod", prod("staging", "1h"))
	require.Equal(t, runnerapi.SourceWaiting, p.settled("prod").Phase)
	repo.Git("checkout", "--quiet", "--orphan", "rewritten") // nothing leads to the first commit any more
	stages(repo, "second")
	status := p.becomes("prod", func() { clock.Step(time.Minute) }, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.NotNil(c, s.Error)
	})
	assert.Equal(t, "ref_not_found", status.Error.Code)
	assert.Contains(t, status.Error.Message, "the commit of source "+p.key("staging").String())
	assert.Contains(t, status.Error.Fix, "uploadpack.allowAnySHA1InWant")
	repo.Config("uploadpack.allowAnySHA1InWant", "true")
	assert.Nil(t, p.sync("prod").Error)
}

// TestPromotion_Refused names what cannot be followed.
func TestPromotion_Refused(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	stages(repo, "first")
	p.git.Create(t, "shop/other.git").Commit(map[string]string{"a": "1"})
	refused := func(name string, spec runnerapi.SourceSpec, code problem.Code, part string) {
		t.Helper()
		spec.URL, spec.Credentials = p.git.URL("shop/deploy.git"), "git-deploy"
		for _, dry := range []bool{true, false} {
			opts := runner
			opts.DryRun = dry
			_, err := p.keeper.Set(t.Context(), p.key(name), spec, opts)
			known := &problem.Error{}
			require.ErrorAs(t, err, &known)
			assert.Equal(t, code, known.Code)
			assert.Contains(t, known.Error(), part)
		}
	}
	refused("prod", prod("staging", ""), problem.Invalid, "there is no source "+p.key("staging").String())
	refused("prod", prod("elsewhere/staging", ""), runnerapi.CodeNamespaceNotManaged, "elsewhere")
	p.put("staging", staging)
	other := staging
	other.URL, other.Credentials = p.git.URL("shop/other.git"), "git-deploy"
	_, err := p.keeper.Set(t.Context(), p.key("other"), other, runner)
	require.NoError(t, err)
	refused("prod", prod("other", ""), problem.Invalid, "follows another repository")
	p.put("prod", prod("staging", ""))
	refused("staging", prod("prod", ""), problem.Invalid, "source "+p.key("staging").String()+" would follow itself")
	p.allow(`rules: [{name: git, commands: [put-source, apply-manifests], kinds: [ConfigMap]}]`)
	refused("second", prod("staging", ""), runnerapi.CodePolicyDenied, "get-source")
	p.allow(allowing)

	// By other means, a circle can be made. It follows nothing.
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(source.Group + "/" + source.Version)
	u.SetKind(source.Kind)
	u.SetNamespace(p.namespace)
	u.SetName("staging")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"promote":{"from":"prod"}}}`))
	require.NoError(t, p.env.Client.Patch(t.Context(), u, patch))
	status := p.becomes("staging", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) { assert.NotNil(c, s.Error) })
	assert.Contains(t, status.Error.Message, "would follow itself")
}

// TestPromotion_WhileBuilding deploys what is being built, and then builds what was promoted
// meanwhile.
func TestPromotion_WhileBuilding(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.allow(`rules: [{name: git, commands: ["*", put-source, put-build, apply-manifests], kinds: [ConfigMap]}]`)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	push := func(replicas string) string {
		return repo.Commit(map[string]string{"app.yaml": "replicas: " + replicas + "\n", "staging/one.yaml": configMapFile("staging", "v"+replicas)})
	}
	one := push("1")
	p.put("staging", staging)
	p.reaches("staging", one, func() {})
	built := prod("staging", "")
	built.Type, built.Path = runnerapi.SourceApp, "app.yaml"
	built.Build = &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}}
	p.put("web", built)
	status := p.settled("web")
	require.Equal(t, runnerapi.SourceBuilding, status.Phase)
	two := push("2")
	p.sync("staging")
	status = p.becomes("web", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.Equal(c, two, s.Promotion.Commit)
	})
	assert.Equal(t, one, status.Build.Commit)
	builds.finish(t, status)
	status = p.becomes("web", func() {}, func(c *assert.CollectT, s runnerapi.SourceStatus) {
		assert.Equal(c, two, s.Build.Commit)
	})
	assert.Equal(t, one, status.Commit)
}
