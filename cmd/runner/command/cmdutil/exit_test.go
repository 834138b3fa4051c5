package cmdutil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/waves"
)

func TestExit(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	of := func(code runnerapi.Code) error {
		return fmt.Errorf("shop: %w", problem.New(500, code, "", "it failed"))
	}
	for name, c := range map[string]struct {
		err  error
		code int
		says string
	}{
		"success":      {nil, ExitOK, ""},
		"other error":  {errors.New("it failed"), ExitFailure, "error: it failed\n"},
		"own code":     {&ExitError{Err: errors.New("it failed"), Code: ExitTimeout, Fix: "wait"}, ExitTimeout, "error: it failed\n  fix: wait\n"},
		"printed":      {&ExitError{Err: errors.New("it failed"), Code: ExitAppFailed, Told: true}, ExitAppFailed, ""},
		"usage":        {cli.Usage(errors.New("no such flag")), ExitUsage, "error: no such flag\n  fix: see `pipeops-runner apps --help`\n"},
		"invalid":      {of(runnerapi.CodeInvalid), ExitUsage, ""},
		"not found":    {of(runnerapi.CodeNotFound), ExitNotFound, ""},
		"unreachable":  {of(client.CodeUnreachable), ExitUnreachable, ""},
		"timeout":      {of(runnerapi.CodeTimeout), ExitTimeout, ""},
		"forbidden":    {of(runnerapi.CodePolicyDenied), ExitRefused, ""},
		"untrusted":    {of(client.CodeUntrusted), ExitRefused, ""},
		"server error": {of(runnerapi.CodeInternal), ExitFailure, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			a := &CLI{Streams: Streams{Err: &said}}
			assert.Equal(t, c.code, a.Exit(t.Context(), "pipeops-runner apps", c.err))
			if c.says != "" || c.code == ExitOK || c.code == ExitAppFailed {
				assert.Equal(t, c.says, said.String())
			}
			assert.Equal(t, c.code == ExitRefused, c.err != nil && IsRefused(c.err))
			said.Reset()
			if own := new(ExitError); c.err != nil && !errors.As(c.err, &own) {
				assert.Equal(t, ExitInterrupted, a.Exit(ended, "pipeops-runner apps", c.err))
				assert.NotContains(t, said.String(), "--help")
			}
		})
	}
}

func TestAt_NamesAgentInFix(t *testing.T) {
	at := &Target{}
	at.Agent.Name, at.Agent.ID = "shop", "a1"
	known := problem.New(404, runnerapi.CodeNotFound, "list them with: pipeops-runner apps AGENT", "no such App")
	assert.EqualError(t, At(at, "production/web", known),
		"agent shop (a1): production/web: no such App (fix: list them with: pipeops-runner apps shop)")
	assert.EqualError(t, At(at, "", errors.New("it failed")), "agent shop (a1): it failed")
}

func TestVerdict(t *testing.T) {
	app := func(phase runnerapi.Phase, observed int64, change func(*runnerapi.AppStatus)) runnerapi.App {
		a := runnerapi.App{Namespace: "production", Name: "web", Generation: 2}
		a.Status.Phase, a.Status.ObservedGeneration = phase, observed
		if change != nil {
			change(&a.Status)
		}
		return a
	}
	crash := &runnerapi.Diagnosis{Cause: "crash_loop", Message: "exit code 1", Fix: "see the logs"}
	for name, c := range map[string]struct {
		app  runnerapi.App
		code int
		says string
	}{
		"healthy":      {app(runnerapi.PhaseHealthy, 2, nil), ExitOK, ""},
		"older spec":   {app(runnerapi.PhaseHealthy, 1, nil), ExitTimeout, ""},
		"paused":       {app(runnerapi.PhasePaused, 2, nil), ExitOK, "production/web is paused"},
		"failed":       {app(runnerapi.PhaseFailed, 2, func(s *runnerapi.AppStatus) { s.Diagnosis = crash }), ExitAppFailed, "fix: see the logs"},
		"no diagnosis": {app(runnerapi.PhaseFailed, 2, nil), ExitAppFailed, "production/web is failed"},
		"progressing":  {app(runnerapi.PhaseProgressing, 2, nil), ExitTimeout, ""},
		"undone": {app(runnerapi.PhaseHealthy, 2, func(s *runnerapi.AppStatus) {
			s.Undone = &runnerapi.Undone{Revision: 3, Generation: 1, Restored: 2, Diagnosis: crash}
		}), ExitAppFailed, "revision 3 failed and was taken back to revision 2: crash_loop: exit code 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			a := &CLI{Streams: Streams{Err: &said}}
			err := a.Verdict(&Target{}, c.app, 1, time.Minute)
			assert.Equal(t, c.code, a.Exit(t.Context(), "pipeops-runner deploy", err))
			assert.Contains(t, said.String(), c.says)
		})
	}
}

func TestDeleted(t *testing.T) {
	gone := problem.New(404, runnerapi.CodeNotFound, "", "no such App")
	away := problem.New(503, client.CodeUnreachable, "", "unreachable")
	going := func(waits string) GoingState { return GoingState{Uid: "1", Going: true, Waits: waits} }
	for name, c := range map[string]struct {
		looks []any // the last one lasts
		code  int
		says  string
	}{
		"gone":            {[]any{going("pod web-0"), away, going("pod web-0"), gone}, ExitOK, "App production/web is being deleted; waits for pod web-0\ndeleted: App production/web\n"},
		"another object":  {[]any{going(""), GoingState{Uid: "2", Going: true}}, ExitOK, "deleted: App production/web\n"},
		"created again":   {[]any{GoingState{Uid: "2", Settled: true}}, ExitOK, "deleted: App production/web\n"},
		"held":            {[]any{going("pod web-0")}, ExitTimeout, "is not gone after 1m0s: waits for pod web-0"},
		"refused to look": {[]any{problem.New(403, runnerapi.CodePolicyDenied, "", "denied")}, ExitRefused, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				a := &CLI{Streams: Streams{Err: &said}}
				look := func(context.Context, *Target) (GoingState, error) {
					now := c.looks[0]
					c.looks = c.looks[min(1, len(c.looks)-1):]
					if err, failed := now.(error); failed {
						return GoingState{}, err
					}
					return now.(GoingState), nil
				}
				key := runnerapi.Key{Namespace: "production", Name: "web"}
				err := a.Deleted(t.Context(), &Target{}, "App", key, &Writing{}, &Waiting{Limit: time.Minute}, look)
				assert.Equal(t, c.code, a.Exit(t.Context(), "pipeops-runner delete", err))
				assert.Contains(t, said.String(), c.says)
			})
		})
	}
}

func TestFleetVerdict(t *testing.T) {
	agent := func(name string) announce.Agent { return announce.Agent{ID: name, Name: name} }
	timeout := &ExitError{Err: errors.New("no outcome"), Code: ExitTimeout}
	rows := fleetRows(t.Context(), []waves.Outcome{
		{Agent: agent("a")}, {Agent: agent("b"), Err: timeout}, {Agent: agent("c"), Err: errors.New("broken")}, {Agent: agent("d"), Skipped: true},
	}, map[string]string{"a": "Healthy 1/1"})
	assert.Equal(t, []fleetRow{
		{Name: "a", ID: "a", Outcome: "succeeded", State: "Healthy 1/1"},
		{Name: "b", ID: "b", Outcome: "failed", ExitCode: ExitTimeout, Message: "no outcome"},
		{Name: "c", ID: "c", Outcome: "failed", ExitCode: ExitFailure, Message: "broken"},
		{Name: "d", ID: "d", Outcome: "skipped"},
	}, rows)
	err := fleetVerdict(rows)
	assert.EqualError(t, err, "2 of 4 agents failed, skipped: 1")
	assert.Equal(t, ExitTimeout, exitCode(t.Context(), err), "that of the first failure")
	assert.Equal(t, ExitInterrupted, exitCode(t.Context(), fleetVerdict(rows[3:])))
	assert.NoError(t, fleetVerdict(rows[:1]))
}
