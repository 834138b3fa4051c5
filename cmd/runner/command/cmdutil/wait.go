package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// DefaultWait is how long the outcome of a rollout is waited for.
const DefaultWait = 2 * time.Minute

// Waiting holds the flags --wait and --no-wait.
type Waiting struct {
	Limit  time.Duration
	noWait bool
}

// Add adds the flags to a command that waits for that long by default, or not at all. A --wait
// without a time waits for at least that long.
func (f *Waiting) Add(cmd *cobra.Command, initial time.Duration) {
	cli.DurationVar(cmd.Flags(), &f.Limit, "wait", initial, "how long to wait for the outcome, as in --wait=5m; 0 to not wait")
	cmd.Flags().Lookup("wait").NoOptDefVal = max(initial, DefaultWait).String()
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait, like --wait=0")
}

// Wanted reports whether to wait.
func (f *Waiting) Wanted() bool { return f.Limit > 0 && !f.noWait }

// Outcome waits, if requested, until the command's rollout has ended. It prints the App and returns
// an error unless the App is healthy.
func (a *CLI) Outcome(ctx context.Context, t *Target, app runnerapi.App, f *Waiting, out *cli.Output) error {
	if !f.Wanted() {
		a.Say("accepted: %s/%s; it continues in the cluster", app.Namespace, app.Name)
		if app.Operation != "" {
			a.Say("see what becomes of it with: pipeops-runner operation %s %s", t.Agent.Name, app.Operation)
		}
		return a.printApp(app, out)
	}
	waitCtx, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	key := runnerapi.Key{Namespace: app.Namespace, Name: app.Name}
	p := NewProgress(a.Err, a.Terminal)
	newest := app
	var err error
	if !app.Settled() {
		newest, err = watch(waitCtx, t, key, app, p)
	}
	if err == nil && newest.Name == "" {
		newest = app
	}
	if err == nil {
		newest = publicAt(waitCtx, t, newest, p)
	}
	p.End()
	switch {
	case ctx.Err() != nil:
		a.Say("stopped waiting; the rollout of %s continues in the cluster. See how it ends with:\n  pipeops-runner status %s %s -n %s --wait",
			key, t.Agent.Name, key.Name, key.Namespace)
		return &ExitError{Err: ctx.Err(), Code: ExitInterrupted, Told: true}
	case err != nil:
		return fmt.Errorf("%s: %s: waiting: %w", t, key, err)
	}
	newest.Operation = app.Operation // the reader of the output may need it
	if err := a.printApp(newest, out); err != nil {
		return err
	}
	if followed(app, newest) && newest.Undone(app.Generation) == nil && app.Operation != "" {
		status := fmt.Sprintf("pipeops-runner status %s %s -n %s --wait", t.Agent.Name, key.Name, key.Namespace)
		return a.OfOperation(ctx, t, key, app.Operation, status)
	}
	return a.Verdict(t, newest, app.Generation, f.Limit)
}

// watch waits until the App has settled, or has had a later change that leaves the command an
// outcome, such as superseded.
func watch(ctx context.Context, t *Target, key runnerapi.Key, app runnerapi.App, p *Progress) (runnerapi.App, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	return t.Apps().Watch(ctx, key, app.Generation, func(now client.Progress) {
		p.report(now)
		if now.Unreachable != nil || app.Operation == "" || !followed(app, now.App) {
			return
		}
		if op, err := t.Operations().Get(ctx, app.Operation); err == nil && op.State != runnerapi.OperationPending {
			end()
		}
	})
}

const (
	// publicWait is how long a healthy App's host below the gateway's domain is waited for.
	publicWait = time.Minute
	// awaitEvery is how often an App is looked at.
	awaitEvery = time.Second
)

// AwaitApp reads an App each second until waits returns nothing, or the context ends, and returns
// its newest state. waits returns what is waited for.
func AwaitApp(ctx context.Context, t *Target, app runnerapi.App, p *Progress, waits func(context.Context, runnerapi.App) (string, error)) (runnerapi.App, error) {
	for {
		what, err := waits(ctx, app)
		if err != nil || what == "" {
			return app, err
		}
		p.Show(what, nil)
		if !retry.Wait(ctx, awaitEvery) {
			return app, nil
		}
		newest, err := t.Apps().Get(ctx, runnerapi.Key{Namespace: app.Namespace, Name: app.Name})
		if err != nil {
			return app, err
		}
		app = newest
	}
}

// publicAt waits until the gateway has got the answer of a healthy App that is to be public, or has
// said why not, and returns the newest state.
func publicAt(ctx context.Context, t *Target, app runnerapi.App, p *Progress) runnerapi.App {
	ctx, cancel := context.WithTimeout(ctx, publicWait)
	defer cancel()
	last, _ := AwaitApp(ctx, t, app, p, func(_ context.Context, now runnerapi.App) (string, error) { // an error ends the wait alone
		if now.Generation == app.Generation && missing(now) {
			return summary(now) + "; waits for the gateway", nil
		}
		return "", nil
	})
	if last.Generation != app.Generation {
		return app
	}
	return last
}

// missing reports whether a healthy App's host below the gateway's domain is not served yet.
func missing(app runnerapi.App) bool {
	if app.Status.Phase != runnerapi.PhaseHealthy || app.Spec.Ingress == nil || !app.Spec.Ingress.Public && len(app.Spec.Ingress.Ports) == 0 || len(app.Status.PublicURLs) > 0 {
		return false
	}
	i := slices.IndexFunc(app.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type == runnerapi.ConditionIngressReady })
	return i < 0 || app.Status.Conditions[i].Reason == runnerapi.ReasonHostNotServed
}

// followed reports whether an App was changed, restarted or replaced after a command left it so.
func followed(left, now runnerapi.App) bool {
	return now.Generation > left.Generation || now.RestartedAt != left.RestartedAt || now.UID != left.UID
}

// OfOperation returns the verdict on a command that was followed by another one: its own outcome.
// The status command shows what applies now.
func (a *CLI) OfOperation(ctx context.Context, t *Target, key runnerapi.Key, id, status string) error {
	op, err := t.Operations().Get(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %s: there was a later change; reading what became of this one: %w", t, key, err)
	}
	switch op.State {
	case runnerapi.OperationSucceeded:
		return nil
	case runnerapi.OperationFailed:
		a.SayFailure(Diagnosed(fmt.Sprintf("%s: this change failed, before a later one", key), op.Diagnosis))
		return &ExitError{Err: errors.New("it failed"), Code: ExitAppFailed, Told: true}
	case runnerapi.OperationPending:
		return &ExitError{Err: fmt.Errorf("%s: %s: no outcome yet", t, key), Code: ExitTimeout, Fix: "see how it ends with: " + status}
	}
	return supersededError(t, key, op, status)
}

func supersededError(t *Target, key runnerapi.Key, op runnerapi.Operation, status string) error {
	return &ExitError{
		Err: fmt.Errorf("%s: %s: superseded: %s", t, key, cli.Printable(op.Message)), Code: ExitSuperseded,
		Fix: "see what holds now: " + status,
	}
}

// Verdict turns an App's state into the command's error.
func (a *CLI) Verdict(t *Target, app runnerapi.App, generation int64, waited time.Duration) error {
	settled := app.Settled() && app.Generation >= generation
	switch undone := app.Undone(generation); {
	case undone != nil:
		a.sayUndone(app, undone)
		return &ExitError{Err: errors.New("the rollout failed and was taken back"), Code: ExitAppFailed, Told: true}
	case settled && app.Status.Phase == runnerapi.PhaseHealthy:
		return nil
	case settled && app.Status.Phase == runnerapi.PhasePaused:
		a.Say("%s/%s is paused: nothing is rolled out until it is resumed", app.Namespace, app.Name)
		return nil
	case settled:
		a.sayDiagnosis(app)
		return &ExitError{Err: errors.New("the App is not healthy"), Code: ExitAppFailed, Told: true}
	}
	a.sayDiagnosis(app)
	return &ExitError{
		Err: fmt.Errorf("%s: %s/%s has not settled after %s: %s", t, app.Namespace, app.Name, waited, summary(app)), Code: ExitTimeout,
		Fix: fmt.Sprintf("it continues in the cluster; see how it ends with: pipeops-runner status %s %s -n %s --wait", t.Agent.Name, app.Name, app.Namespace),
	}
}

// Diagnosed returns a failure with the evidence of a diagnosis, if there is one.
func Diagnosed(what string, d *runnerapi.Diagnosis) cli.Failure {
	f := cli.Failure{What: what}
	if d == nil {
		return f
	}
	if d.Object != "" {
		f.Details = append(f.Details, "object: "+cli.Printable(d.Object))
	}
	if d.ExitCode != nil {
		f.Details = append(f.Details, fmt.Sprintf("exit code: %d", *d.ExitCode))
	}
	f.Fix, f.Name, f.LastLines = cli.Printable(d.Fix), string(d.Cause), d.LastLines
	return f
}

// Progress shows the progress of a rollout: one line that changes on a terminal, and a line per
// change elsewhere.
type Progress struct {
	w        io.Writer
	terminal bool
	start    time.Time
	last     string
}

// NewProgress shows progress on w.
func NewProgress(w io.Writer, terminal bool) *Progress {
	return &Progress{w: w, terminal: terminal, start: time.Now()}
}

func (p *Progress) report(r client.Progress) { p.Show(summary(r.App), r.Unreachable) }

// Show shows how it stands now.
func (p *Progress) Show(text string, unreachable error) {
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

// End ends the line.
func (p *Progress) End() {
	if p.terminal && p.last != "" {
		cli.EndProgress(p.w)
	}
}

// summary returns an App's summary in one line.
func summary(app runnerapi.App) string {
	s := fmt.Sprintf("%s/%s: %s, ", app.Namespace, app.Name, app.State())
	if app.Spec.Type.Runs() {
		s += "last run: " + app.Ready()
	} else {
		s += app.Ready() + " ready"
	}
	if d := app.Status.Diagnosis; d != nil {
		s += ", " + string(d.Cause)
	}
	if w := app.Status.WaitingFor; w != "" {
		s += "; waits for " + cli.Printable(w)
	}
	return s
}
