package source_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The policy counts at each fetch. What was applied stays.
func TestSource_StopsWithUnlistedHost(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
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
