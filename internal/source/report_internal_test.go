package source

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestReport_Due(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }
	last := func(state runnerapi.ReportState, sent, succeeded time.Duration) runnerapi.SourceReportStatus {
		s := runnerapi.SourceReportStatus{State: state, Commit: "a", Description: "text", SentAt: ago(sent)}
		if succeeded > 0 {
			s.SucceededAt = ago(succeeded)
		}
		return s
	}
	const pending, success, failure, fault = runnerapi.ReportPending, runnerapi.ReportSuccess, runnerapi.ReportFailure, runnerapi.ReportError
	for what, c := range map[string]struct {
		last runnerapi.SourceReportStatus
		want commitState
		wait time.Duration
		ok   bool
	}{
		"nothing was sent":         {runnerapi.SourceReportStatus{}, commitState{state: pending, commit: "a", description: ""}, 0, true},
		"another commit":           {last(success, time.Second, time.Second), commitState{state: pending, commit: "b", description: ""}, 0, true},
		"pending again":            {last(pending, time.Minute, 0), commitState{state: pending, commit: "a", description: ""}, 0, false},
		"applied again":            {last(failure, time.Minute, 0), commitState{state: pending, commit: "a", description: ""}, 0, false},
		"quickly ready":            {last(pending, time.Second, 0), commitState{state: success, commit: "a", description: ""}, 0, true},
		"quickly failed":           {last(pending, time.Second, 0), commitState{state: failure, commit: "a", description: ""}, 0, true},
		"ready still":              {last(success, time.Minute, time.Minute), commitState{state: success, commit: "a", description: ""}, 0, false},
		"served now":               {last(success, time.Minute, time.Minute), commitState{state: success, commit: "a", url: "https://a"}, 0, true},
		"served late":              {last(success, time.Minute, finalAfter), commitState{state: success, commit: "a", url: "https://a"}, 0, false},
		"degraded":                 {last(success, time.Second, time.Second), commitState{state: failure, commit: "a", description: ""}, flapPause - time.Second, true},
		"degraded late":            {last(success, time.Minute, finalAfter), commitState{state: failure, commit: "a", description: ""}, 0, false},
		"recovered":                {last(failure, time.Minute, time.Hour), commitState{state: success, commit: "a", description: ""}, 0, true},
		"failed by the same cause": {last(failure, time.Hour, 0), commitState{state: failure, commit: "a", description: "text"}, 0, false},
		"failed by another cause":  {last(failure, time.Minute, 0), commitState{state: failure, commit: "a", description: "other"}, textPause - time.Minute, true},
		"failed by its own fault":  {last(fault, time.Hour, 0), commitState{state: failure, commit: "a", description: "text"}, 0, true},
	} {
		wait, ok := due(c.want, c.last, now)
		assert.Equal(t, c.ok, ok, what)
		if ok {
			assert.Equal(t, c.wait, wait, what)
		}
	}
}

func TestReport_StateOf(t *testing.T) {
	o := newObject(runnerapi.Key{Namespace: "shop", Name: "web"})
	o.Spec.Type, o.Spec.Report = runnerapi.SourceApp, &runnerapi.SourceReport{Forge: runnerapi.GitHub}
	state := func(s runnerapi.SourceStatus) (commitState, bool) {
		o.Status = s
		return stateOf(o)
	}
	got, ok := state(runnerapi.SourceStatus{Phase: runnerapi.SourceBuilding, Commit: "a", Attempted: "b"})
	assert.Equal(t, commitState{state: runnerapi.ReportPending, commit: "b", description: "the agent builds the image"}, got)
	assert.True(t, ok)
	got, _ = state(runnerapi.SourceStatus{Phase: runnerapi.SourceReady, Commit: "a", Revision: 4})
	assert.Equal(t, commitState{state: runnerapi.ReportSuccess, commit: "a", description: "ready: revision 4 of App shop/web"}, got)
	got, _ = state(runnerapi.SourceStatus{Phase: runnerapi.SourceDegraded, Commit: "a", Health: &runnerapi.SourceHealth{
		Message: "it crashes", Diagnosis: &runnerapi.Diagnosis{Fix: "correct it"},
	}})
	assert.Equal(t, commitState{state: runnerapi.ReportFailure, commit: "a", description: "it crashes (fix: correct it)"}, got)
	got, _ = state(runnerapi.SourceStatus{Phase: runnerapi.SourceFailed, Error: &runnerapi.SourceError{
		Code: "invalid", Commit: "b", Message: "one\ntwo" + strings.Repeat("é", 100), Fix: "correct it",
	}})
	assert.Equal(t, runnerapi.ReportFailure, got.state)
	assert.LessOrEqual(t, len(got.description), 140)
	assert.True(t, strings.HasPrefix(got.description, "one; two"))
	got, _ = state(runnerapi.SourceStatus{Phase: runnerapi.SourceFailed, Error: &runnerapi.SourceError{Code: "audit_unavailable", Commit: "b"}})
	assert.Equal(t, runnerapi.ReportError, got.state)
	_, ok = state(runnerapi.SourceStatus{Phase: runnerapi.SourceFailed, Commit: "a", Error: &runnerapi.SourceError{Code: "unreachable"}})
	assert.False(t, ok, "nothing is known of a new commit")
	_, ok = state(runnerapi.SourceStatus{Phase: runnerapi.SourceSuspended, Commit: "a"})
	assert.False(t, ok)
	got, _ = state(runnerapi.SourceStatus{Phase: runnerapi.SourceSuspended, Commit: "a", Report: &runnerapi.SourceReportStatus{State: runnerapi.ReportPending, Commit: "b"}})
	assert.Equal(t, commitState{state: runnerapi.ReportError, commit: "b", description: "the source was suspended before the commit was ready"}, got)
}

// published are Apps of which one has a public address.
type published struct{ Apps }

func (published) Get(_ context.Context, key runnerapi.Key) (runnerapi.App, error) {
	if key.Name != "web" {
		return runnerapi.App{}, problem.Errorf(problem.NotFound, "check the name", "there is no App %s", key)
	}
	return runnerapi.App{Status: runnerapi.AppStatus{PublicURLs: []string{"https://shop.example.com", "https://www.example.com"}}}, nil
}

func TestReport_URLOf(t *testing.T) {
	r := &reporter{applier: &applier{Config: Config{Apps: published{}}}}
	o := newObject(runnerapi.Key{Namespace: "shop", Name: "web"})
	o.Spec.Type, o.Spec.Report = runnerapi.SourceApp, &runnerapi.SourceReport{}
	assert.Equal(t, "https://shop.example.com", r.urlOf(t.Context(), o))
	o.Spec.App = "db"
	assert.Empty(t, r.urlOf(t.Context(), o))
	o.Spec.Report.EnvironmentURL = "https://db.example.com"
	assert.Equal(t, "https://db.example.com", r.urlOf(t.Context(), o))
}
