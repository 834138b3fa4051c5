package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newJob(a *app) *cobra.Command {
	return group("job", "Run Jobs to completion",
		newJobRun(a), newJobStatus(a), newJobList(a),
		newRunLogs(a, "job", "Print or follow a Job's log", (*client.Client).JobLogs, "migrate"),
		newRunDelete(a, "job", "Stop a Job if it runs, and delete it with its pods", removal{(*client.Client).DeleteJob, jobLook}, "migrate"))
}

func jobLook(key runnerapi.Key) look {
	return func(ctx context.Context, t *target) (goingState, error) {
		job, err := t.GetJob(ctx, key)
		going := job.Status.State == runnerapi.JobDeleting
		return goingState{uid: job.UID, going: going, settled: job.Settled(), waits: job.Status.WaitingFor}, err
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
	wait: func(ctx context.Context, t *target, j runnerapi.Job, report func(runnerapi.Job, error)) (runnerapi.Job, error) {
		return t.WaitJob(ctx, runnerapi.Key{Namespace: j.Namespace, Name: j.Name}, j.Generation, report)
	},
	table:       jobDetails,
	undiagnosed: func(j runnerapi.Job) runnerapi.Job { j.Status.Diagnosis = nil; return j },
}

// jobRunCommand runs a Job.
type jobRunCommand struct {
	runFlags
	spec          specFlags
	retries       optionalInt
	deadline, ttl time.Duration
}

func newJobRun(a *app) *cobra.Command {
	c := &jobRunCommand{runFlags: runFlags{rollout: rollout{app: a}}}
	cmd := &cobra.Command{
		Use:   "run AGENT NAME (--image IMAGE | -f FILE) [flags] [-- ARG...]",
		Short: "Run a Job and wait for its end",
		Long: `Run a Job and wait until it ends or cannot continue. The exit code is 0 only if the Job
succeeded.

Each call is a new run, which replaces the previous one. With --run, the same Job under the same
name runs once, no matter how often you call the command. The Job and its outcome stay until you
delete the Job. Its log stays as long as its pods do.`,
		Example: `  pipeops-runner job run shop migrate --image registry.example.com/shop/web:1.4.2 -- migrate
  pipeops-runner job run shop migrate --image registry.example.com/shop/web:1.4.2 --run build-1742 --retries 0 --deadline 10m --ttl 24h -- migrate`,
		Args:              c.args,
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				c.spec.args, args = args[dash:], args[:dash]
			}
			return c.run(cmd.Context(), args[0], args[1])
		},
	}
	c.add(cmd, "Job")
	c.spec.addContainer(cmd)
	cmd.Flags().Var(&c.retries, "retries", "number of retries of a failed pod (default: 3)")
	cmd.Flags().DurationVar(&c.deadline, "deadline", 0, "time limit of the Job, with all retries (default: none)")
	cmd.Flags().DurationVar(&c.ttl, "ttl", 0, "delete the pods and their log this long after the end (default: never)")
	return cmd
}

func (c *jobRunCommand) args(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	return exactArgs("AGENT", "NAME")(cmd, args)
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
		return usageError{errors.New("no image: give --image IMAGE, or a file that has one")}
	}
	spec.Run = c.runName(spec.Run)
	return c.on(ctx, agent, func(ctx context.Context, t *target) error {
		key := runnerapi.Key{Namespace: c.namespace, Name: name}
		job, err := t.RunJob(ctx, key, spec, c.options())
		if err != nil {
			return at(t, key.String(), err)
		}
		if c.dryRun {
			c.say("dry run: %s would be taken; nothing was changed", key)
			return c.out.Write(c.app.out, job, func(w io.Writer) { jobDetails(w, job) })
		}
		return jobs.conclude(ctx, c.app, t, job, &c.wait, &c.out)
	})
}

// overlay overrides the file's values by the flags.
func (c *jobRunCommand) overlay(spec *runnerapi.JobSpec) error {
	app := spec.AppSpec()
	if err := c.spec.apply(&app); err != nil {
		return err
	}
	*spec = runnerapi.JobOf(runnerapi.App{Spec: app}).Spec
	if c.retries.set {
		spec.Retries = &c.retries.value
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
			return usageError{fmt.Errorf("%s %s: give a second at least", flag, f.given)}
		default:
			f.set(int64(f.given / time.Second))
		}
	}
	return nil
}

func newJobStatus(a *app) *cobra.Command {
	return newRunStatus(a, jobs, "job", "Show the state of a Job, and why it failed", (*client.Client).GetJob, "migrate")
}

// newRunStatus shows a job or pipeline.
func newRunStatus[T any](a *app, k runKind[T], kind, short string, get func(*client.Client, context.Context, runnerapi.Key) (T, error), name string) *cobra.Command {
	var out cli.Output
	var namespace string
	wait := &waiting{}
	cmd := &cobra.Command{
		Use: "status AGENT NAME", Short: short,
		Long:              short + ".\n\nWith --wait, the command waits for the end and exits as run does.",
		Example:           fmt.Sprintf("  pipeops-runner %[1]s status shop %[2]s\n  pipeops-runner %[1]s status shop %[2]s --wait=5m", kind, name),
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				run, err := get(t.Client, ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				if wait.wanted() {
					return k.conclude(ctx, a, t, run, wait, &out)
				}
				return out.Write(a.out, run, func(w io.Writer) { k.table(w, run) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	addRunWait(cmd, wait, 0)
	return cmd
}

func newJobList(a *app) *cobra.Command {
	return listing[runnerapi.Job]{
		short: "List the Jobs of a namespace", example: "pipeops-runner job list shop",
		items: (*client.Client).ListJobs,
		list:  func(items []runnerapi.Job) any { return runnerapi.JobList{Items: items} },
		table: jobTable,
	}.command(a)
}

func jobTable(w io.Writer, items ...runnerapi.Job) {
	cli.Row(w, "NAME", "STATE", "TRIES", "EXIT", "STARTED", "CAUSE", "IMAGE")
	for _, j := range items {
		cli.Row(w, j.Name, j.Status.State, j.Status.Tries, exitText(j.Status.ExitCode), since(j.Status.StartedAt), causeOf(j.Status.Diagnosis), j.Spec.Image)
	}
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
	waitingRows(w, j.Status.WaitingFor, j.Status.LastLines)
	diagnosisRows(w, j.Status.Diagnosis)
}

func causeOf(d *runnerapi.Diagnosis) runnerapi.Cause {
	if d == nil {
		return ""
	}
	return d.Cause
}

func since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return cli.Age(*t)
}
