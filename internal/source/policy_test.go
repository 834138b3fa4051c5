package source_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// The policy counts at each fetch. What was applied stays.
func TestSource_StopsWithUnlistedHost(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	first := repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:1\n"})
	spec := runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"}
	p.allow(allowing + "fetchHosts: ['127.0.0.1']\n")
	p.put("web", spec)
	status := p.settled("web")
	require.Nil(t, status.Error)
	assert.Equal(t, first, status.Commit)

	second := repo.Commit(map[string]string{"web/app.yaml": "image: registry.example.com/web:2\n"})
	p.allow(allowing + "fetchHosts: ['*.example.com']\n")
	before := p.git.Requests.Load()
	status = p.sync("web")
	require.NotNil(t, status.Error)
	assert.Equal(t, "host_forbidden", status.Error.Code)
	assert.Contains(t, status.Error.Message, `fetchHosts in the customer's policy does not list the host "127.0.0.1"`)
	assert.Contains(t, status.Error.Fix, "fetchHosts in a test")
	assert.Equal(t, first, status.Commit, "what was applied before stays")
	spec.URL = p.git.URL("shop/deploy.git")
	_, err := p.keeper.Set(t.Context(), p.key("db"), spec, runner)
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, "host_forbidden", string(known.Code))
	assert.Equal(t, "url", known.Field)
	assert.Equal(t, before, p.git.Requests.Load())

	p.allow(allowing)
	status = p.sync("web")
	require.Nil(t, status.Error)
	assert.Equal(t, second, status.Commit)
}

func TestSource_BuildRefusalNamesField(t *testing.T) {
	for field, want := range map[string]string{"git.url": "url", "git.credentials": "build.gitCredentials", "path.namespace": "build.namespace", "ca.secret": "build.ca.secret"} {
		known := &problem.Error{}
		require.ErrorAs(t, source.InBuild(problem.Errorf(problem.Invalid, "fix", "wrong").WithField(field)), &known)
		assert.Equal(t, want, known.Field)
	}
}

// TestSource_NothingWithoutAuditRecord requires records. What was applied before stays.
func TestSource_NothingWithoutAuditRecord(t *testing.T) {
	t.Parallel()
	p := open(t)
	var full atomic.Bool
	full.Store(true)
	p.keeper.UseBefore(func(_ context.Context, r runnerapi.AuditRecord) error {
		if full.Load() {
			return backend.AuditUnavailable()
		}
		p.audited.record(r)
		return nil
	})
	p.secret("correct horse")
	commit := p.git.Create(t, "shop/deploy.git").Commit(map[string]string{
		"app.yaml": "image: registry.example.com/web:1\n", "set/one.yaml": configMapFile("one", "first"),
	})
	specs := map[string]runnerapi.SourceSpec{
		"web": {Type: runnerapi.SourceApp, Path: "app.yaml"}, "set": {Type: runnerapi.SourceManifests, Path: "set"},
	}
	for name, spec := range specs {
		p.put(name, spec)
		status := p.settled(name)
		require.NotNil(t, status.Error, name)
		assert.Equal(t, string(backend.CodeAuditUnavailable), status.Error.Code)
		assert.Empty(t, status.Commit, name)
	}
	full.Store(false)
	for name := range specs {
		status := p.sync(name)
		require.Nil(t, status.Error, name)
		assert.Equal(t, commit, status.Commit)
	}
	for name := range specs {
		var outcomes []runnerapi.AuditOutcome
		for _, r := range p.audited.all() {
			if r.Name == name && r.Code == "" {
				outcomes = append(outcomes, r.Outcome)
			}
		}
		assert.Equal(t, []runnerapi.AuditOutcome{runnerapi.AuditBegun, runnerapi.AuditDone}, outcomes, name)
	}
}

// TestSource_RevokedRunnerStops expects that the sources stay suspended until they are put again,
// even if the Runner is no longer revoked. Those of others go on.
func TestSource_RevokedRunnerStops(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	first := repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:1\n"})
	spec := runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "app.yaml"}
	other := runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "ops", RequestID: "request-2"}}
	p.put("web", spec)
	p.putBy("theirs", spec, other)
	require.Equal(t, first, p.settled("web").Commit)
	require.Equal(t, first, p.settled("theirs").Commit)

	p.keeper.SetRevoked([]string{"ci"})
	suspended := p.suspended("web")
	require.NotNil(t, suspended.Suspension)
	assert.Equal(t, source.CodeRunnerRevoked, suspended.Suspension.Code)
	assert.Equal(t, "ci", suspended.Suspension.Runner)
	assert.Contains(t, suspended.Suspension.Message, "Runner ci, which put this source, was revoked")
	assert.Contains(t, suspended.Suspension.Fix, "source set AGENT web")
	assert.Equal(t, "RunnerRevoked", suspended.Conditions[0].Reason)
	second := repo.Commit(map[string]string{"app.yaml": "image: registry.example.com/web:2\n"})
	assert.Equal(t, first, p.sync("web").Commit, "nothing is fetched")
	assert.Equal(t, second, p.sync("theirs").Commit)
	var records []runnerapi.AuditRecord
	for _, r := range p.audited.all() {
		if r.Code == source.CodeRunnerRevoked {
			records = append(records, r)
		}
	}
	require.Len(t, records, 1)
	assert.Equal(t, "web", records[0].Name)

	p.keeper.SetRevoked(nil) // the Runner was recreated, for another holder
	assert.Equal(t, runnerapi.SourceSuspended, p.sync("web").Phase)
	p.keeper.SetRevoked([]string{"ci"})
	other.Caller.RequestID = "request-3"
	p.putBy("web", spec, other)
	await.Until(t, "the source continues in another Runner's name", func() bool {
		s, err := p.keeper.Get(t.Context(), p.key("web"))
		require.NoError(t, err)
		return s.Runner == "ops" && s.Status.Suspension == nil && s.Status.Commit == second
	})
}

// suspended waits for that.
func (p *place) suspended(name string) (status runnerapi.SourceStatus) {
	p.t.Helper()
	await.Until(p.t, "source "+name+" is suspended", func() bool {
		s, err := p.keeper.Get(p.t.Context(), p.key(name))
		require.NoError(p.t, err)
		status = s.Status
		return status.Phase == runnerapi.SourceSuspended
	})
	return status
}

// endless builds never end; internal/build has real ones, which take an engine.
type endless struct {
	sync.Mutex
	under map[runnerapi.Key]runnerapi.Build
}

func (e *endless) Supersede(_ context.Context, _, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	e.Lock()
	defer e.Unlock()
	b := runnerapi.Build{Namespace: key.Namespace, Name: key.Name, Spec: spec, Status: runnerapi.BuildStatus{Phase: runnerapi.BuildBuilding}}
	if !opts.DryRun {
		e.under[key] = b
	}
	return b, nil
}

func (e *endless) Get(_ context.Context, key runnerapi.Key) (runnerapi.Build, error) {
	e.Lock()
	defer e.Unlock()
	return e.under[key], nil
}

func (e *endless) Delete(_ context.Context, key runnerapi.Key, _ runnerapi.WriteOptions) error {
	e.Lock()
	defer e.Unlock()
	delete(e.under, key)
	return nil
}

func (e *endless) OfSources(context.Context) (map[runnerapi.Key]runnerapi.Key, error) {
	return map[runnerapi.Key]runnerapi.Key{}, nil
}

func (e *endless) count() int {
	e.Lock()
	defer e.Unlock()
	return len(e.under)
}

// The build would push in the name of the Runner.
func TestSource_RevokedRunnerEndsBuild(t *testing.T) {
	t.Parallel()
	builds := &endless{under: map[runnerapi.Key]runnerapi.Build{}}
	p := openWith(t, kubetest.ControlPlane(t), builds)
	p.allow(`rules: [{name: git, commands: ["*", put-source, put-build]}]`)
	p.secret("correct horse")
	p.git.Create(t, "shop/deploy.git").Commit(map[string]string{"app.yaml": "replicas: 1\n"})
	p.put("web", runnerapi.SourceSpec{
		Type: runnerapi.SourceApp, Path: "app.yaml", Build: &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}},
	})
	require.Equal(t, runnerapi.SourceBuilding, p.settled("web").Phase)
	require.Equal(t, 1, builds.count())
	p.keeper.SetRevoked([]string{"ci"})
	assert.Nil(t, p.suspended("web").Build)
	assert.Zero(t, builds.count())
}
