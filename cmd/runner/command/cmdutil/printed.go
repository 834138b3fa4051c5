package cmdutil

import (
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// printApp prints one App: its name for scripts and people, or the whole.
func (a *CLI) printApp(app runnerapi.App, out *cli.Output) error {
	a.State(app.State() + " " + app.Ready())
	return out.Write(a.Out, app, func(w io.Writer) {
		cli.Row(w, "NAMESPACE", "NAME", "PHASE", "READY", "IMAGE")
		cli.Row(w, app.Namespace, app.Name, app.State(), app.Ready(), app.Spec.Image)
		for _, url := range app.Status.URLs {
			cli.Say(w, "in the cluster at %s", cli.Printable(url))
		}
		for _, url := range app.Status.PublicURLs {
			cli.Say(w, "public at %s", cli.Printable(url))
		}
		for _, c := range app.Status.Conditions {
			if c.Lacks() {
				cli.Say(w, "%s", cli.Printable(ConditionText(c)))
			}
		}
	})
}

// ConditionText returns what does not hold of an App, and the fix.
func ConditionText(c runnerapi.Condition) string {
	text := c.Message
	if c.Type == runnerapi.ConditionIngressReady {
		text = "not served yet: " + text
	}
	if c.Fix != "" {
		text += "; fix: " + c.Fix
	}
	return text
}

// agentWord matches the placeholder of the agent in a fix with a command.
var agentWord = regexp.MustCompile(`\bAGENT\b`)

// At adds to an error where it happened.
func At(t *Target, what string, err error) error {
	if known, ok := errors.AsType[*runnerapi.Error](err); ok { // the agent does not know by which name it was called
		known.Fix = agentWord.ReplaceAllString(known.Fix, t.Agent.Name)
	}
	if what != "" {
		return fmt.Errorf("%s: %s: %w", t, what, err)
	}
	return fmt.Errorf("%s: %w", t, err)
}

// WaitingRows prints what is waited for, and what the init container wrote that is waited for.
func WaitingRows(w io.Writer, what string, lastLines []string) {
	if what != "" {
		cli.Row(w, "Waits for:", what)
	}
	for _, line := range lastLines {
		cli.Row(w, "Last lines:", line)
	}
}

// DiagnosisRows prints why something is not well.
func DiagnosisRows(w io.Writer, d *runnerapi.Diagnosis) {
	if d == nil {
		return
	}
	cli.Row(w, "Cause:", d.Cause)
	cli.Row(w, "Message:", d.Message)
	cli.Row(w, "Fix:", d.Fix)
	cli.Row(w, "Object:", d.Object)
	if d.ExitCode != nil {
		cli.Row(w, "Exit code:", *d.ExitCode)
	}
	for _, line := range d.LastLines {
		cli.Row(w, "Last lines:", line)
	}
}

// UndoneText describes a rollout that failed and was taken back.
func UndoneText(u *runnerapi.Undone) string {
	text := fmt.Sprintf("revision %d failed and was taken back to revision %d", u.Revision, u.Restored)
	if u.Diagnosis != nil {
		text += fmt.Sprintf(": %s: %s", u.Diagnosis.Cause, u.Diagnosis.Message)
	}
	return text
}
