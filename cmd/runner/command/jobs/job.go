// Package jobs has the commands about Jobs and Pipelines.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/apps"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewJob returns the command job.
func NewJob(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("job", "Run Jobs to completion",
		newJobRun(a), newJobStatus(a), newJobList(a),
		newRunLogs(a, jobs, "job", "Print or follow a Job's log", "migrate"),
		newRunDelete(a, jobs, "job", "Stop a Job if it runs, and delete it with its pods", jobLook, "migrate"))
}

func jobLook(key runnerapi.Key) cmdutil.Look {
	return func(ctx context.Context, t *cmdutil.Target) (cmdutil.GoingState, error) {
		job, err := t.Jobs().Get(ctx, key)
		going := job.Status.State == runnerapi.JobDeleting
		return cmdutil.GoingState{Uid: job.UID, Going: going, Settled: job.Settled(), Waits: job.Status.WaitingFor}, err
	}
}

var jobs = runKind[runnerapi.Job]{
	of: func(j runnerapi.Job) standing {
		return standing{
			kind: "job", key: runnerapi.Key{Namespace: j.Namespace, Name: j.Name},
			uid: j.UID, operation: j.Operation, generation: j.Generation,
			settled: j.Settled(), state: j.Status.State, diagnosis: j.Status.Diagnosis,
		}
	},
	calls:       func(c *client.Client) runCalls[runnerapi.Job] { return c.Jobs() },
	table:       jobDetails,
	undiagnosed: func(j runnerapi.Job) runnerapi.Job { j.Status.Diagnosis = nil; return j },
}

// jobRunCommand runs a Job.
type jobRunCommand struct {
	runFlags
	spec          apps.SpecFlags
	retries       apps.OptionalInt
	deadline, ttl time.Duration
}

func newJobRun(a *cmdutil.CLI) *cobra.Command {
	c := &jobRunCommand{runFlags: runFlags{Rollout: cmdutil.Rollout{CLI: a}}}
	cmd := &cobra.Command{
		Use:   "run [AGENT] NAME (--image IMAGE | -f FILE) [flags] [-- ARG...]",
		Short: "Run a Job and wait for its end",
		Long: `Run a Job and wait until it ends or cannot continue. The exit code is 0 only if the Job
succeeded.

Each call is a new run, which replaces the previous one. With --run, the same Job under the same
name runs once, no matter how often you call the command. The Job and its outcome stay until you
delete the Job. Its log stays as long as its pods do.`,
		Example: `  pipeops-runner job run shop migrate --image registry.example.com/shop/web:1.4.2 -- migrate
  pipeops-runner job run shop migrate --image registry.example.com/shop/web:1.4.2 --run build-1742 --retries 0 --deadline 10m --ttl 24h -- migrate`,
		Args:              cmdutil.BeforeDash(cli.ExactArgs("AGENT", "NAME")),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, c.spec.Args = cmdutil.SplitArgs(cmd, args)
			return c.run(cmd.Context(), args[0], args[1])
		},
	}
	c.add(cmd, "Job")
	c.spec.AddContainer(cmd)
	cmd.Flags().Var(&c.retries, "retries", "number of retries of a failed pod (default: 3)")
	cli.DurationVar(cmd.Flags(), &c.deadline, "deadline", 0, "time limit of the Job, with all retries (default: none)")
	cli.DurationVar(cmd.Flags(), &c.ttl, "ttl", 0, "delete the pods and their log this long after the end (default: never)")
	return cmd
}

func (c *jobRunCommand) run(ctx context.Context, agent, name string) error {
	var spec runnerapi.JobSpec
	if err := c.read(&spec); err != nil {
		return err
	}
	if err := c.overlay(&spec); err != nil {
		return err
	}
	if spec.Image == "" {
		return cli.Usage(errors.New("no image: give --image IMAGE, or a file that has one"))
	}
	spec.Run = c.runName(spec.Run)
	c.SayWarnings(spec.AppSpec())
	return c.On(ctx, agent, func(ctx context.Context, t *cmdutil.Target) error {
		key := runnerapi.Key{Namespace: c.Namespace, Name: name}
		job, err := t.Jobs().Run(ctx, key, spec, c.Options())
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if c.DryRun {
			c.Say("dry run: %s would be accepted; nothing was changed", key)
			return c.Out.Write(c.CLI.Out, job, func(w io.Writer) { jobDetails(w, job) })
		}
		return jobs.conclude(ctx, c.CLI, t, job, &c.Wait, &c.Out)
	})
}

// overlay overrides the file's values by the flags.
func (c *jobRunCommand) overlay(spec *runnerapi.JobSpec) error {
	app := spec.AppSpec()
	if err := c.spec.Apply(&app); err != nil {
		return err
	}
	*spec = runnerapi.JobOf(runnerapi.App{Spec: app}).Spec
	if c.retries.Given {
		spec.Retries = &c.retries.Value
	}
	for flag, f := range map[string]struct {
		given time.Duration
		set   func(seconds int64)
	}{
		"--deadline": {c.deadline, func(s int64) { spec.DeadlineSeconds = &s }},
		"--ttl":      {c.ttl, func(s int64) { n := int32(min(s, 1<<30)); spec.TTLSeconds = &n }}, //nolint:gosec // it fits
	} {
		switch {
		case f.given == 0:
		case f.given < time.Second:
			return cli.Usage(fmt.Errorf("%s %s: give a second at least", flag, f.given))
		default:
			f.set(int64(f.given / time.Second))
		}
	}
	return nil
}

func newJobStatus(a *cmdutil.CLI) *cobra.Command {
	return newRunStatus(a, jobs, "job", "Show the state of a Job, and why it failed", "migrate")
}

// newRunStatus shows a job or pipeline.
func newRunStatus[T any](a *cmdutil.CLI, k runKind[T], kind, short, name string) *cobra.Command {
	var out cli.Output
	wait := &cmdutil.Waiting{}
	cmd := a.Named(&cobra.Command{
		Use: "status [AGENT] NAME", Short: short,
		Long:    short + ".\n\nWith --wait, the command waits for the end and exits as run does.",
		Example: fmt.Sprintf("  pipeops-runner %[1]s status shop %[2]s\n  pipeops-runner %[1]s status shop %[2]s --wait=5m", kind, name),
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		run, err := k.calls(t.Client).Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if wait.Wanted() {
			return k.conclude(ctx, a, t, run, wait, &out)
		}
		return out.Write(a.Out, run, func(w io.Writer) { k.table(w, run) })
	})
	out.Add(cmd)
	addRunWait(cmd, wait, 0)
	return cmd
}

func newJobList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Job]{
		Short: "List the Jobs of a namespace", Example: "pipeops-runner job list shop",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Job] { return c.Jobs() },
		List:  func(items []runnerapi.Job) any { return runnerapi.JobList{Items: items} },
		Table: tables.Jobs,
	}.Command(a)
}

func jobDetails(w io.Writer, j runnerapi.Job) {
	cli.Row(w, "Job:", runnerapi.Key{Namespace: j.Namespace, Name: j.Name})
	cli.Row(w, "State:", j.Status.State)
	cli.Row(w, "Image:", j.Spec.Image)
	if j.Spec.Run != "" {
		cli.Row(w, "Run:", j.Spec.Run)
	}
	runTimes(w, j.Status.StartedAt, j.Status.FinishedAt)
	if j.Status.Tries > 0 {
		cli.Row(w, "Tries:", j.Status.Tries)
	}
	if j.Status.ExitCode != nil && j.Status.Diagnosis == nil { // which has it too
		cli.Row(w, "Exit code:", *j.Status.ExitCode)
	}
	cmdutil.WaitingRows(w, j.Status.WaitingFor, j.Status.LastLines)
	cmdutil.DiagnosisRows(w, j.Status.Diagnosis)
}
