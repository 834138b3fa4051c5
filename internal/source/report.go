package source

import (
	"fmt"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// finalAfter is how long a commit's state still changes after its first success. What happens
	// to an App later is not the commit's doing.
	finalAfter = 10 * time.Minute
	// flapPause is the least time between two states of a commit that was ready once.
	flapPause = 10 * time.Second
	// textPause is the least time between two texts of the same state: a forge has limits on
	// states of a commit (GitHub: 1000).
	textPause = 5 * time.Minute
)

// commitState is the state of a commit that a forge is to show.
type commitState struct {
	state       runnerapi.ReportState
	commit      string
	description string
	url         string // where what is deployed can be seen; may become known later
}

// stateOf returns the state of the newest commit of a source, with a text that fits its forge;
// false if there is none to show.
func stateOf(o *object) (commitState, bool) {
	state, ok := newestState(o)
	state.description = forge.Clip(o.Spec.Report.Forge, state.description)
	return state, ok
}

func newestState(o *object) (commitState, bool) {
	s := o.Status
	switch {
	case s.Phase == runnerapi.SourceBuilding:
		return commitState{state: runnerapi.ReportPending, commit: s.Attempted, description: "the agent builds the image"}, s.Attempted != ""
	case s.Phase == runnerapi.SourceProgressing:
		return commitState{state: runnerapi.ReportPending, commit: s.Commit, description: "deployed; not ready yet"}, s.Commit != ""
	case s.Phase == runnerapi.SourceReady:
		return commitState{state: runnerapi.ReportSuccess, commit: s.Commit, description: readyText(o)}, s.Commit != ""
	case s.Phase == runnerapi.SourceDegraded && s.Health != nil:
		return commitState{state: runnerapi.ReportFailure, commit: s.Commit, description: healthText(*s.Health)}, s.Commit != ""
	case s.Phase == runnerapi.SourceSuspended && s.Report != nil && s.Report.State == runnerapi.ReportPending: // for ever, else
		return commitState{state: runnerapi.ReportError, commit: s.Report.Commit, description: "the source was suspended before the commit was ready"}, true
	case s.Phase == runnerapi.SourceFailed && s.Error != nil: // without a commit, the repository could not be read
		return commitState{state: failureOf(s.Error.Code), commit: s.Error.Commit, description: withFix(s.Error.Message, s.Error.Fix)}, s.Error.Commit != ""
	}
	return commitState{}, false
}

// faults are errors that are not the commit's.
var faults = []string{
	string(problem.Internal), string(problem.Unavailable), string(problem.Busy), string(problem.Timeout),
	string(git.Unreachable), string(backend.CodeAuditUnavailable),
}

func failureOf(code string) runnerapi.ReportState {
	if slices.Contains(faults, code) {
		return runnerapi.ReportError
	}
	return runnerapi.ReportFailure
}

func readyText(o *object) string {
	if o.Spec.Type == runnerapi.SourceApp {
		return fmt.Sprintf("ready: revision %d of App %s", o.Status.Revision, appKey(o))
	}
	return fmt.Sprintf("ready: %d objects in namespace %s", o.Status.Objects, o.Namespace)
}

func healthText(h runnerapi.SourceHealth) string {
	if h.Diagnosis != nil {
		return withFix(h.Message, h.Diagnosis.Fix)
	}
	return h.Message
}

func withFix(message, fix string) string {
	if fix == "" {
		return message
	}
	return message + " (fix: " + fix + ")"
}

// due returns how long a state waits until it is sent, where the forge has accepted another one
// before; false for ever.
func due(want commitState, last runnerapi.SourceReportStatus, now time.Time) (wait time.Duration, ok bool) {
	sent, err := time.Parse(time.RFC3339, last.SentAt)
	if err != nil || last.Commit != want.commit { // nothing was accepted of this commit
		return 0, true
	}
	after := func(pause time.Duration) time.Duration { return max(sent.Add(pause).Sub(now), 0) }
	switch {
	case want.state == runnerapi.ReportPending: // a commit that is applied again keeps its state until it has another
		return 0, false
	case last.State == runnerapi.ReportPending:
		return 0, true
	case want.state == runnerapi.ReportSuccess && last.State != runnerapi.ReportSuccess:
		return after(flapPause), true
	case want.state == runnerapi.ReportSuccess && (want.url == "" || want.url == last.URL):
		return 0, false
	case last.State == runnerapi.ReportSuccess: // it has failed since, or has another address
		succeeded, err := time.Parse(time.RFC3339, last.SucceededAt)
		return after(flapPause), err == nil && now.Sub(succeeded) < finalAfter
	}
	return after(textPause), last.State != want.state || last.Description != want.description
}
