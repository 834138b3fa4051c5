package cmdutil

import (
	"fmt"
	"io"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Streams are where a command reads and writes. Results go to Out; progress, hints and errors,
// which scripts should not see, to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Err is a terminal
	Screen   bool // Out is one
}

// Say prints hints for people, which scripts that read the output must not see.
func (s Streams) Say(format string, args ...any) {
	cli.Say(s.Err, format, args...)
}

// SayWarnings prints what of a spec runs otherwise than it is written.
func (s Streams) SayWarnings(spec runnerapi.AppSpec) {
	for _, w := range spec.Warnings() {
		s.Say("warning: %s", w)
	}
}

// SayFailure prints an error in the form of all programs.
func (s Streams) SayFailure(f cli.Failure) { f.Print(s.Err, program) }

// SayDeleted says that something is deleted, or would be.
func (s Streams) SayDeleted(what string, dryRun bool) {
	if dryRun {
		s.Say("dry run: %s would be deleted; nothing was changed", what)
		return
	}
	s.Say("deleted: %s", what)
}

// SayNone says that a list is empty.
func (s Streams) SayNone(scope Scope) {
	if scope.All {
		s.Say("there are none in the namespaces that the agent manages")
		return
	}
	s.Say("there are none in namespace %s; -n names another, -A all", scope.Namespace)
}

// PrintLog prints a line as the container wrote it, but for what would steer a terminal.
func (s Streams) PrintLog(line string, raw bool) error {
	if s.Screen && !raw {
		return cli.Print(s.Out, line)
	}
	return cli.Raw(s.Out, []byte(line+"\n"))
}

// sayDiagnosis prints why an App is not healthy.
func (s Streams) sayDiagnosis(app runnerapi.App) {
	d := app.Status.Diagnosis
	state := fmt.Sprintf("%s/%s is %s", app.Namespace, app.Name, strings.ToLower(string(app.Status.Phase)))
	if d == nil {
		if app.Settled() {
			s.SayFailure(cli.Failure{What: state})
		}
		return
	}
	s.SayFailure(Diagnosed(state+": "+cli.Printable(d.Message), d))
}

// sayUndone prints why a rollout was taken back.
func (s Streams) sayUndone(app runnerapi.App, undone *runnerapi.Undone) {
	f := cli.Failure{What: fmt.Sprintf("%s/%s: %s", app.Namespace, app.Name, cli.Printable(UndoneText(undone)))}
	if undone.Diagnosis != nil {
		f.Fix, f.Name = cli.Printable(undone.Diagnosis.Fix), string(undone.Diagnosis.Cause)
	}
	s.SayFailure(f)
}

// FailedObject returns the error of an object that is not well, with the evidence.
func (s Streams) FailedObject(object, message string, d *runnerapi.Diagnosis) error {
	s.SayFailure(Diagnosed(fmt.Sprintf("%s is not well: %s", cli.Printable(object), cli.Printable(message)), d))
	return &ExitError{Err: fmt.Errorf("%s is not well", object), Code: ExitAppFailed, Told: true}
}
