package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// runWait is how long what runs to its end is waited for: longer than a rollout.
const runWait = time.Hour

// runFlags are those of the commands that run a job or a pipeline.
type runFlags struct {
	cmdutil.Rollout
	file, name string
}

func (f *runFlags) add(cmd *cobra.Command, what string) {
	f.Out.Add(cmd)
	addRunWait(cmd, &f.Wait, runWait)
	cmdutil.NamespaceFlag(cmd, &f.Namespace)
	f.AddWriting(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "filename", "f", "", "file with the "+what+" in YAML or JSON, or - for standard input")
	fl.StringVar(&f.name, "run", "", "name of the run; the same name with the same "+what+" runs nothing again (default: a new name)")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // fails for an unknown flag only
}

func addRunWait(cmd *cobra.Command, w *cmdutil.Waiting, initial time.Duration) {
	w.Add(cmd, initial)
	cmd.Flags().Lookup("wait").NoOptDefVal = runWait.String()
}

// read fills a spec from the file, if there is one.
func (f *runFlags) read(spec any) error {
	if f.file == "" {
		return nil
	}
	text, err := cli.ReadLimited(f.file, f.In, cmdutil.MaxManifest)
	if err == nil {
		err = appfile.Decode(text, spec)
	}
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", f.file, err))
	}
	return nil
}

// runName returns the run's: the flag's, the file's, or one that no other has.
func (f *runFlags) runName(inFile string) string {
	if f.Key == "" {
		f.Key = uuid.NewString()
	}
	return cmp.Or(f.name, inFile, f.Key)
}

// standing is how a job or a pipeline stands, in what they have in common.
type standing struct {
	kind      string // job or pipeline
	key       runnerapi.Key
	uid       string
	operation string
	// generation counts the runs under this name.
	generation int64
	settled    bool
	state      runnerapi.JobState
	doing      string // which job is in progress, or failed; empty for a job
	diagnosis  *runnerapi.Diagnosis
}

// followed reports whether another run took the place of this one.
func (s standing) followed(now standing) bool {
	return now.key.Name != "" && (now.generation > s.generation || now.uid != s.uid)
}

func (s standing) String() string {
	text := fmt.Sprintf("%s: %s", s.key, s.state)
	if s.doing != "" {
		text += ", " + s.doing
	}
	if s.diagnosis != nil {
		text += ", " + string(s.diagnosis.Cause)
	}
	return text
}

// runKind is what the commands have to know of jobs, or of pipelines.
type runKind[T any] struct {
	of    func(T) standing
	calls func(*client.Client) runCalls[T]
	table func(io.Writer, T)
	// undiagnosed is what the table shows if the diagnosis is printed to standard error.
	undiagnosed func(T) T
}

// runCalls is a handle of the client for jobs, or for pipelines.
type runCalls[T any] interface {
	cmdutil.Lister[T]
	Get(ctx context.Context, key runnerapi.Key) (T, error)
	Wait(ctx context.Context, key runnerapi.Key, generation int64, report func(T, error)) (T, error)
	Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
}

// conclude waits, if requested, until a run has ended. It prints the run, and returns an error
// unless the run succeeded.
func (k runKind[T]) conclude(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, run T, f *cmdutil.Waiting, out *cli.Output) error {
	s := k.of(run)
	if !f.Wanted() {
		a.Say("accepted: %s; it continues in the cluster", s.key)
		if s.operation != "" {
			a.Say("see what becomes of it with: pipeops-runner operation %s %s", t.Agent.Name, s.operation)
		}
		return out.Write(a.Out, run, func(w io.Writer) { k.table(w, run) })
	}
	waitCtx, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	p := cmdutil.NewProgress(a.Err, a.Terminal)
	newest := run
	var err error
	if !s.settled {
		newest, err = k.calls(t.Client).Wait(waitCtx, s.key, s.generation, func(now T, away error) {
			p.Show(k.of(now).String(), away)
			if s.followed(k.of(now)) {
				cancel() // the other run's end is not this one's
			}
		})
	}
	p.End()
	status := fmt.Sprintf("pipeops-runner %s status %s %s -n %s --wait", s.kind, t.Agent.Name, s.key.Name, s.key.Namespace)
	switch {
	case ctx.Err() != nil:
		a.Say("stopped waiting; %s continues in the cluster. See how it ends with:\n  %s", s.key, status)
		return &cmdutil.ExitError{Err: ctx.Err(), Code: cmdutil.ExitInterrupted, Told: true}
	case err != nil:
		return fmt.Errorf("%s: %s: waiting: %w", t, s.key, err)
	}
	if k.of(newest).key.Name == "" {
		newest = run
	}
	if err := out.Write(a.Out, newest, func(w io.Writer) { k.table(w, k.undiagnosed(newest)) }); err != nil {
		return err
	}
	if s.followed(k.of(newest)) && s.operation != "" {
		return a.OfOperation(ctx, t, s.key, s.operation, status)
	}
	return runVerdict(a, t, k.of(newest), f.Limit, status)
}

// runVerdict turns the state of a job or pipeline into the command's error.
func runVerdict(a *cmdutil.CLI, t *cmdutil.Target, s standing, waited time.Duration, status string) error {
	switch {
	case s.settled && s.state == runnerapi.JobSucceeded:
		return nil
	case s.settled:
		sayStanding(a, s)
		return &cmdutil.ExitError{Err: errors.New("it did not succeed"), Code: cmdutil.ExitAppFailed, Told: true}
	}
	return &cmdutil.ExitError{
		Err: fmt.Errorf("%s: %s has not ended after %s: %s", t, s.key, waited, s), Code: cmdutil.ExitTimeout,
		Fix: "it continues in the cluster; see how it ends with: " + status,
	}
}

func sayStanding(a *cmdutil.CLI, s standing) {
	what := strings.ToLower(string(s.state))
	if s.doing != "" {
		what += ": " + s.doing
	}
	what = fmt.Sprintf("%s %s is %s", s.kind, s.key, what)
	if s.diagnosis != nil {
		what += ": " + cli.Printable(s.diagnosis.Message)
	}
	a.SayFailure(cmdutil.Diagnosed(what, s.diagnosis))
	if s.state == runnerapi.JobBlocked {
		a.Say("  it continues by itself when that is fixed, and ends with its deadline or with: pipeops-runner %s delete", s.kind)
	}
}

// runTimes prints the rows that jobs and pipelines share.
func runTimes(w io.Writer, started, finished *time.Time) {
	if started != nil {
		cli.Row(w, "Started:", cli.Time(*started))
	}
	if started != nil && finished != nil {
		cli.Row(w, "Took:", finished.Sub(*started).Round(time.Second))
	}
}
