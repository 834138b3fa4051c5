package source_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

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
