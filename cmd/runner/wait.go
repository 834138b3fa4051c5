package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

const defaultWait = 2 * time.Minute

// waiting holds the flags --wait and --no-wait.
type waiting struct {
	limit  time.Duration
	noWait bool
}

// add adds the flags to a command that waits for that long by default, or not at all. A --wait
// without a time waits for at least that long.
func (f *waiting) add(cmd *cobra.Command, initial time.Duration) {
	cmd.Flags().DurationVar(&f.limit, "wait", initial, "how long to wait for the outcome, as in --wait=5m; 0 to not wait")
	cmd.Flags().Lookup("wait").NoOptDefVal = max(initial, defaultWait).String()
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait, like --wait=0")
}

// wanted reports whether to wait.
func (f *waiting) wanted() bool { return f.limit > 0 && !f.noWait }

// outcome waits, if requested, until the command's rollout has ended. It prints the App and returns
// an error unless the App is healthy.
func (a *app) outcome(ctx context.Context, t *target, app runnerapi.App, f *waiting, out *cli.Output) error {
	if !f.wanted() {
		a.say("accepted: %s/%s; it goes on in the cluster", app.Namespace, app.Name)
		if app.Operation != "" {
			a.say("see what becomes of it with: pipeops-runner operation %s %s", t.agent.Name, app.Operation)
		}
		return a.printApp(app, out)
	}
	waitCtx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	key := runnerapi.Key{Namespace: app.Namespace, Name: app.Name}
	p := newProgress(a.err, a.terminal)
	newest := app
	var err error
	if !app.Settled() {
		newest, err = t.Watch(waitCtx, key, app.Generation, p.report)
	}
	p.end()
	switch {
	case ctx.Err() != nil:
		a.say("stopped waiting; the rollout of %s goes on in the cluster. See how it ends with:\n  pipeops-runner status %s %s -n %s --wait",
			key, t.agent.Name, key.Name, key.Namespace)
		return &exitError{error: ctx.Err(), code: exitInterrupted, told: true}
	case err != nil:
		return fmt.Errorf("%s: %s: waiting: %w", t, key, err)
	}
	if newest.Name == "" {
		newest = app
	}
	newest.Operation = app.Operation // the reader of the output may need it
	if err := a.printApp(newest, out); err != nil {
		return err
	}
	if followed(app, newest) && newest.Undone(app.Generation) == nil && app.Operation != "" {
		status := fmt.Sprintf("pipeops-runner status %s %s -n %s --wait", t.agent.Name, key.Name, key.Namespace)
		return a.ofOperation(ctx, t, key, app.Operation, status)
	}
	return a.verdict(t, newest, app.Generation, f.limit)
}

// followed reports whether an App was changed, restarted or replaced after a command left it so.
func followed(left, now runnerapi.App) bool {
	return now.Generation > left.Generation || now.RestartedAt != left.RestartedAt || now.UID != left.UID
}

// ofOperation returns the verdict on a command that was followed by another one: its own outcome.
// The status command shows what applies now.
func (a *app) ofOperation(ctx context.Context, t *target, key runnerapi.Key, id, status string) error {
	op, err := t.Operation(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %s: there was a later change; reading what became of this one: %w", t, key, err)
	}
	switch op.State {
	case runnerapi.OperationSucceeded:
		return nil
	case runnerapi.OperationFailed:
		a.say("Error: %s: this change failed, before a later one", key)
		if op.Diagnosis != nil {
			a.sayEvidence(op.Diagnosis)
		}
		return &exitError{error: errors.New("it failed"), code: exitAppFailed, told: true}
	case runnerapi.OperationPending:
		return &exitError{error: fmt.Errorf("%s: %s: no outcome yet", t, key), code: exitTimeout, fix: "see how it ends with: " + status}
	}
	return supersededError(t, key, op, status)
}

func supersededError(t *target, key runnerapi.Key, op runnerapi.Operation, status string) error {
	return &exitError{
		error: fmt.Errorf("%s: %s: superseded: %s", t, key, cli.Printable(op.Message)), code: exitSuperseded,
		fix: "see what holds now: " + status,
	}
}

// verdict turns an App's state into the command's error.
func (a *app) verdict(t *target, app runnerapi.App, generation int64, waited time.Duration) error {
	settled := app.Settled() && app.Generation >= generation
	switch undone := app.Undone(generation); {
	case undone != nil:
		a.say("Error: %s/%s: %s", app.Namespace, app.Name, cli.Printable(undoneText(undone)))
		if undone.Diagnosis != nil {
			a.say("  fix: %s", cli.Printable(undone.Diagnosis.Fix))
		}
		return &exitError{error: errors.New("the rollout failed and was taken back"), code: exitAppFailed, told: true}
	case settled && app.Status.Phase == runnerapi.PhaseHealthy:
		return nil
	case settled && app.Status.Phase == runnerapi.PhasePaused:
		a.say("%s/%s is paused: nothing is rolled out until it is resumed", app.Namespace, app.Name)
		return nil
	case settled:
		a.sayDiagnosis(app)
		return &exitError{error: errors.New("the App is not healthy"), code: exitAppFailed, told: true}
	}
	a.sayDiagnosis(app)
	return &exitError{
		error: fmt.Errorf("%s: %s/%s has not settled after %s: %s", t, app.Namespace, app.Name, waited, summary(app)), code: exitTimeout,
		fix: fmt.Sprintf("it goes on in the cluster; see how it ends with: pipeops-runner status %s %s -n %s --wait", t.agent.Name, app.Name, app.Namespace),
	}
}

// sayDiagnosis prints why an App is not healthy.
func (a *app) sayDiagnosis(app runnerapi.App) {
	d := app.Status.Diagnosis
	if d == nil {
		if app.Settled() {
			a.say("Error: %s/%s is %s", app.Namespace, app.Name, strings.ToLower(string(app.Status.Phase)))
		}
		return
	}
	a.say("Error: %s/%s is %s: %s", app.Namespace, app.Name, strings.ToLower(string(app.Status.Phase)), cli.Printable(d.Message))
	a.sayEvidence(d)
}

// sayEvidence prints the evidence beside a diagnosis' message.
func (a *app) sayEvidence(d *runnerapi.Diagnosis) {
	a.say("  cause: %s", d.Cause)
	if d.Object != "" {
		a.say("  object: %s", cli.Printable(d.Object))
	}
	if d.ExitCode != nil {
		a.say("  exit code: %d", *d.ExitCode)
	}
	a.say("  fix: %s", cli.Printable(d.Fix))
	if len(d.LastLines) > 0 {
		a.say("  last lines:")
		for _, line := range d.LastLines {
			a.say("    %s", cli.Printable(line))
		}
	}
}

// progress shows the progress of a rollout: one line that changes on a terminal, and a line per
// change elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	start    time.Time
	last     string
}

func newProgress(w io.Writer, terminal bool) *progress {
	return &progress{w: w, terminal: terminal, start: time.Now()}
}

func (p *progress) report(r client.Progress) { p.show(summary(r.App), r.Unreachable) }

func (p *progress) show(text string, unreachable error) {
	if unreachable != nil {
		text = "the agent does not answer now; still waiting"
	}
	if p.terminal {
		cli.Progress(p.w, "%s (%s)", text, time.Since(p.start).Round(time.Second))
	} else if text != p.last {
		cli.Say(p.w, "%s", cli.Printable(text))
	}
	p.last = text
}

func (p *progress) end() {
	if p.terminal && p.last != "" {
		cli.EndProgress(p.w)
	}
}

// summary returns an App's summary in one line.
func summary(app runnerapi.App) string {
	s := fmt.Sprintf("%s/%s: %s, ", app.Namespace, app.Name, app.Status.Phase)
	if app.Spec.Type.Runs() {
		s += "last run: " + ready(app)
	} else {
		s += ready(app) + " ready"
	}
	if d := app.Status.Diagnosis; d != nil {
		s += ", " + string(d.Cause)
	}
	if w := app.Status.WaitingFor; w != "" {
		s += "; waits for " + cli.Printable(w)
	}
	return s
}

// ready returns how many of the desired pods are ready, or the state of the last run for an App
// that runs to its end.
func ready(app runnerapi.App) string {
	switch {
	case app.Spec.Type.Runs() && len(app.Status.Runs) == 0:
		return "none"
	case app.Spec.Type.Runs():
		return string(app.Status.Runs[0].Outcome)
	}
	want := app.Status.DesiredReplicas
	if app.Spec.Type.Scales() && app.Spec.Autoscaling == nil {
		want = 1
		if app.Spec.Replicas != nil {
			want = *app.Spec.Replicas
		}
	}
	return fmt.Sprintf("%d/%d", app.Status.ReadyReplicas, want)
}
