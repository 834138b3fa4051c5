package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewPipeline returns the command pipeline.
func NewPipeline(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("pipeline", "Run Pipelines: jobs in sequence, until one fails",
		newPipelineRun(a), newPipelineStatus(a), newPipelineList(a),
		newRunLogs(a, pipelines, "pipeline", "Print or follow the log of a Pipeline's jobs", "release"),
		newRunDelete(a, pipelines, "pipeline", "Stop a Pipeline if it runs, and delete it with its pods", pipelineLook, "release"))
}

func pipelineLook(key runnerapi.Key) cmdutil.Look {
	return func(ctx context.Context, t *cmdutil.Target) (cmdutil.GoingState, error) {
		p, err := t.Pipelines().Get(ctx, key)
		going := p.Status.State == runnerapi.JobDeleting
		return cmdutil.GoingState{Uid: p.UID, Going: going, Settled: p.Settled(), Waits: p.Status.WaitingFor}, err
	}
}

var pipelines = runKind[runnerapi.Pipeline]{
	of: func(p runnerapi.Pipeline) standing {
		return standing{
			kind: "pipeline", key: runnerapi.Key{Namespace: p.Namespace, Name: p.Name},
			uid: p.UID, operation: p.Operation, generation: p.Generation,
			settled: p.Settled(), state: p.Status.State, doing: tables.UnderWay(p), diagnosis: p.Status.Diagnosis,
		}
	},
	calls:       func(c *client.Client) runCalls[runnerapi.Pipeline] { return c.Pipelines() },
	table:       pipelineDetails,
	undiagnosed: func(p runnerapi.Pipeline) runnerapi.Pipeline { p.Status.Diagnosis = nil; return p },
}

func newPipelineRun(a *cmdutil.CLI) *cobra.Command {
	c := &runFlags{Rollout: cmdutil.Rollout{CLI: a}}
	var image string
	cmd := &cobra.Command{
		Use:   "run [AGENT] NAME -f FILE [flags]",
		Short: "Run a Pipeline and wait for its end",
		Long: `Run a Pipeline's jobs one after the other, and wait until the last job ends or one fails. The
exit code is 0 only if all jobs succeeded.

The file holds the Pipeline in YAML or JSON. Each call is a new run from the first job, which
replaces the previous run. With --run, the same Pipeline under the same name runs once, no matter
how often you call the command.`,
		Example: `  pipeops-runner pipeline run shop release -f pipeline.yaml
  pipeops-runner pipeline run shop release -f pipeline.yaml --image registry.example.com/shop/web:1.4.2 --run build-1742 --wait=30m`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return cli.Usage(errors.New("no jobs: give them in a file, with -f FILE"))
			}
			return c.pipeline(cmd.Context(), args[0], args[1], image)
		},
	}
	c.add(cmd, "Pipeline")
	cmd.Flags().StringVar(&image, "image", "", "container image of the jobs that name none")
	return cmd
}

func (f *runFlags) pipeline(ctx context.Context, agent, name, image string) error {
	var spec runnerapi.PipelineSpec
	if err := f.read(&spec); err != nil {
		return err
	}
	if image != "" {
		spec.Image = image
	}
	spec.Run = f.runName(spec.Run)
	f.SayWarnings(spec.AppSpec())
	return f.On(ctx, agent, func(ctx context.Context, t *cmdutil.Target) error {
		key := runnerapi.Key{Namespace: f.Namespace, Name: name}
		p, err := t.Pipelines().Run(ctx, key, spec, f.Options())
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if f.DryRun {
			f.Say("dry run: %s would be accepted; nothing was changed", key)
			return f.Out.Write(f.CLI.Out, p, func(w io.Writer) { pipelineDetails(w, p) })
		}
		return pipelines.conclude(ctx, f.CLI, t, p, &f.Wait, &f.Out)
	})
}

func newPipelineStatus(a *cmdutil.CLI) *cobra.Command {
	return newRunStatus(a, pipelines, "pipeline", "Show a Pipeline and its jobs, and why one failed", "release")
}

func newPipelineList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Pipeline]{
		Short: "List the Pipelines of a namespace", Example: "pipeops-runner pipeline list shop",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Pipeline] { return c.Pipelines() },
		List:  func(items []runnerapi.Pipeline) any { return runnerapi.PipelineList{Items: items} },
		Table: tables.Pipelines,
	}.Command(a)
}

func pipelineDetails(w io.Writer, p runnerapi.Pipeline) {
	cli.Row(w, "Pipeline:", runnerapi.Key{Namespace: p.Namespace, Name: p.Name})
	cli.Row(w, "State:", p.Status.State)
	if p.Status.FailedJob != "" {
		cli.Row(w, "Failed job:", p.Status.FailedJob)
	}
	if p.Spec.Run != "" {
		cli.Row(w, "Run:", p.Spec.Run)
	}
	runTimes(w, p.Status.StartedAt, p.Status.FinishedAt)
	for _, j := range p.Status.Jobs {
		row := string(j.State)
		if j.Tries > 1 {
			row += fmt.Sprintf(", %d tries", j.Tries)
		}
		if j.ExitCode != nil && *j.ExitCode != 0 {
			row += fmt.Sprintf(", exit code %d", *j.ExitCode)
		}
		cli.Row(w, "Job "+j.Name+":", row)
	}
	cmdutil.WaitingRows(w, p.Status.WaitingFor, p.Status.LastLines)
	cmdutil.DiagnosisRows(w, p.Status.Diagnosis)
}
