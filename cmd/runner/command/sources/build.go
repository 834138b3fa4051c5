package sources

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewBuild returns the command build.
func NewBuild(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("build", "Build images from Git in an agent's cluster",
		newBuildRun(a), newBuildStatus(a), newBuildLogs(a), newBuildList(a), newBuildDelete(a))
}

// buildRun starts a build.
type buildRun struct {
	*cmdutil.CLI
	out       cli.Output
	namespace string
	spec      runnerapi.BuildSpec
	template  buildTemplate
	wait      time.Duration
	follow    bool
	waiting   bool
	cmdutil.Writing
}

const defaultBuildWait = runnerapi.DefaultBuildDeadline

func newBuildRun(a *cmdutil.CLI) *cobra.Command {
	c := &buildRun{CLI: a}
	cmd := &cobra.Command{
		Use:   "run [AGENT] NAME",
		Short: "Build an image from a Git repository and push it",
		Long: `Build an image from a Dockerfile in a Git repository, in the agent's cluster, and push it to a
registry. Only one run of a build is active at a time.`,
		Example:           `  pipeops-runner build run shop web -n pipeops-builds --git https://git.example.com/shop/web.git --ref main --git-credentials git --image registry.example.com/shop/web --push-credentials registry --follow`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.waiting = cmd.Flags().Changed("wait")
			if err := c.complete(); err != nil {
				return cli.Usage(err)
			}
			key := runnerapi.Key{Namespace: c.namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error { return c.run(ctx, t, key) })
		},
	}
	c.out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	c.AddWriting(cmd)
	c.flags(cmd)
	return cmd
}

func (c *buildRun) flags(cmd *cobra.Command) {
	f, s := cmd.Flags(), &c.spec
	f.StringVar(&s.Git.URL, "git", "", "address of the Git repository")
	f.StringVar(&s.Git.Ref.Branch, "ref", "", "branch to build (default: the repository's default branch)")
	f.StringVar(&s.Git.Ref.Tag, "tag", "", "tag to build, instead of a branch")
	f.StringVar(&s.Git.Ref.Semver, "semver", "", "range of versions, such as '>=1.2.0 <2', of which to build the newest tag, instead of a branch")
	f.StringVar(&s.Git.Ref.Commit, "commit", "", "commit to build with all 40 digits, instead of a branch")
	f.StringVar(&s.Git.Path, "path", "", "directory in the repository that is the build context")
	f.StringVar(&s.Git.Credentials, "git-credentials", "", "secret with the credentials for the Git repository")
	c.template.flags(f, "--path")
	f.StringVar(&s.Run, "run", "", "name of the run; the same name with the same flags builds nothing again (default: a new name)")
	f.BoolVarP(&c.follow, "follow", "f", false, "print the log as it arrives, and wait for the end")
	cli.DurationVar(f, &c.wait, "wait", 0, "how long to wait for the outcome, as in --wait=10m")
	f.Lookup("wait").NoOptDefVal = defaultBuildWait.String()
}

// complete checks the flags and makes the spec of them.
func (c *buildRun) complete() error {
	for flag, value := range map[string]string{"--git": c.spec.Git.URL, "--image": c.template.Image} {
		if value == "" {
			return errors.New(flag + " is needed")
		}
	}
	if err := c.template.complete(); err != nil {
		return err
	}
	c.spec.BuildTemplate = c.template.BuildTemplate
	if c.spec.Run == "" {
		c.spec.Run = strings.ToLower(rand.Text())
	}
	return nil
}

func (c *buildRun) run(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
	b, err := t.Builds().Run(ctx, key, c.spec, c.Options())
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	if c.DryRun || !c.follow && !c.waiting {
		if !c.DryRun {
			c.Say("build %s continues in the cluster; see it with: pipeops-runner build logs %s %s -n %s -f", key, t.Agent.Name, key.Name, key.Namespace)
		}
		return printBuild(c.CLI, b, &c.out)
	}
	wait := defaultBuildWait
	if c.waiting && c.wait > 0 {
		wait = c.wait
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if c.follow {
		err := t.Builds().Logs(limited, key, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
			c.Say("%s", cli.Printable(l.Line))
			return nil
		})
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
	}
	return outcomeOfBuild(ctx, limited, c.CLI, t, key, &c.out)
}

// outcomeOfBuild waits for the end, prints it, and returns an error unless there is an image.
func outcomeOfBuild(ctx, limited context.Context, a *cmdutil.CLI, t *cmdutil.Target, key runnerapi.Key, out *cli.Output) error {
	said := ""
	b, err := t.Builds().Wait(limited, key, func(b runnerapi.Build) {
		now := strings.TrimSpace(string(b.Status.Phase) + " " + cli.Printable(b.Status.Message))
		if now != said && !b.Status.Phase.Ended() {
			a.Say("%s: %s", key, now)
			said = now
		}
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return &cmdutil.ExitError{Code: cmdutil.ExitTimeout, Err: fmt.Errorf("build %s has not ended yet; it continues in the cluster", key),
			Fix: "wait on: pipeops-runner build logs " + t.Agent.Name + " " + key.Name + " -n " + key.Namespace + " -f"}
	}
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	if err := printBuild(a, b, out); err != nil {
		return err
	}
	return verdictOfBuild(a, b)
}

func verdictOfBuild(a *cmdutil.CLI, b runnerapi.Build) error {
	f := b.Status.Failure
	if f == nil {
		return nil
	}
	said := cli.Failure{
		What: fmt.Sprintf("%s/%s failed (%s): %s", b.Namespace, b.Name, f.Stage, cli.Printable(f.Message)),
		Fix:  cli.Printable(f.Fix), Name: f.Cause, LastLines: f.LastLines,
	}
	if f.Step != "" {
		said.Details = []string{fmt.Sprintf("step: %s (line %d)", cli.Printable(f.Step), f.Line)}
	}
	a.SayFailure(said)
	return &cmdutil.ExitError{Err: errors.New("the build failed"), Code: cmdutil.ExitAppFailed, Told: true}
}

func printBuild(a *cmdutil.CLI, b runnerapi.Build, out *cli.Output) error {
	return out.Write(a.Out, b, func(w io.Writer) { tables.Builds(w, b) })
}

func newBuildStatus(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use: "status [AGENT] NAME", Short: "Show a build's progress, and its image or its failure",
		Example: "  pipeops-runner build status shop web -n pipeops-builds",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		b, err := t.Builds().Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		_ = verdictOfBuild(a, b) // reported; the command itself did what it should
		return printBuild(a, b, &out)
	})
	out.Add(cmd)
	return cmd
}

func newBuildLogs(a *cmdutil.CLI) *cobra.Command {
	return newLogsOfBuild(a, "Print or follow the log of a build", "pipeops-runner build logs shop web -n pipeops-builds -f",
		func(_ context.Context, _ *cmdutil.Target, key runnerapi.Key) (runnerapi.Key, error) { return key, nil })
}

// newLogsOfBuild prints the log of the build that belongs to what is named.
func newLogsOfBuild(a *cmdutil.CLI, short, example string, build func(context.Context, *cmdutil.Target, runnerapi.Key) (runnerapi.Key, error)) *cobra.Command {
	var namespace string
	opts := runnerapi.LogOptions{}
	cmd := &cobra.Command{
		Use: "logs [AGENT] NAME", Short: short,
		Example:           "  " + example,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				key, err := build(ctx, t, runnerapi.Key{Namespace: namespace, Name: args[1]})
				if err != nil {
					return err
				}
				return printBuildLog(ctx, a, t, key, opts)
			})
		},
	}
	cmdutil.NamespaceFlag(cmd, &namespace)
	buildLogFlags(cmd, &opts)
	return cmd
}

func printBuildLog(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.LogOptions) error {
	err := t.Builds().Logs(ctx, key, opts, func(l runnerapi.LogLine) error {
		return a.PrintLog(l.Line, false)
	})
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	return nil
}

func buildLogFlags(cmd *cobra.Command, opts *runnerapi.LogOptions) {
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "print new lines until the build ends")
	cmd.Flags().IntVar(&opts.Tail, "tail", -1, "number of last lines of each step; -1 for all")
	cmd.Flags().StringVarP(&opts.Container, "container", "c", "", "print only one step: fetch, build or push")
}

func newBuildList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Build]{
		Short: "List the builds of a namespace", Example: "pipeops-runner build list shop -n pipeops-builds",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Build] { return c.Builds() },
		List:  func(items []runnerapi.Build) any { return runnerapi.BuildList{Items: items} },
		Table: tables.Builds,
	}.Command(a)
}

func newBuildDelete(a *cmdutil.CLI) *cobra.Command {
	return a.Deletion(&cobra.Command{
		Short:   "Cancel a build and delete its runs",
		Example: "  pipeops-runner build delete shop web -n pipeops-builds",
	}, "build", func(c *client.Client) cmdutil.Deleter { return c.Builds() })
}
