// Package releases has the commands about Helm releases.
package releases

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewRelease returns the command release.
func NewRelease(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("helm", "Manage Helm releases in an agent's cluster",
		newReleaseDeploy(a), newReleaseStatus(a), newReleaseList(a), newReleaseHistory(a), newReleaseRollback(a), newReleaseDelete(a))
}

func newReleaseList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Release]{
		Short: "List the Helm releases of a namespace", Example: "pipeops-runner helm list shop",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Release] { return c.Releases() },
		List:  func(items []runnerapi.Release) any { return runnerapi.ReleaseList{Items: items} },
		Table: tables.Releases,
	}.Command(a)
}

func newReleaseHistory(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use: "history [AGENT] NAME", Short: "List the revisions of a release",
		Example: "  pipeops-runner helm history shop guide",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		list, err := t.Releases().History(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return out.Write(a.Out, runnerapi.ReleaseList{Items: list}, func(w io.Writer) { tables.Releases(w, list...) })
	})
	out.AddList(cmd)
	return cmd
}

func newReleaseStatus(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace string
	var wait cmdutil.Waiting
	var fleet cmdutil.Fleet
	cmd := &cobra.Command{
		Use: "status [AGENT] NAME", Short: "Show a release and the command that works on it",
		Example:           "  pipeops-runner helm status shop guide\n  pipeops-runner helm status shop guide --wait=5m",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return fleet.Each(cmd.Context(), a, args[0], &out, func(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target) error {
				release, err := t.Releases().Get(ctx, key)
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if wait.Wanted() {
					return releaseOutcome(ctx, a, t, release, &wait, &out, looks)
				}
				return printRelease(a, release, &out)
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	wait.Add(cmd, 0)
	fleet.Add(cmd)
	cmd.Flags().Lookup("wait").NoOptDefVal = releaseWait.String()
	return cmd
}

// releaseWait is a minute more than a release's objects have to become ready.
const releaseWait = runnerapi.DefaultReleaseTimeout + time.Minute

// releaseCommand is what the commands have in common that change a release.
type releaseCommand struct {
	*cmdutil.CLI
	cmdutil.Writing
	namespace string
	wait      cmdutil.Waiting
	out       cli.Output
	fleet     cmdutil.Fleet
	does      releaseDeed
}

// releaseDeed is what a command does to a release.
type releaseDeed int

const (
	looks   releaseDeed = iota
	deploys             // the newest revision is the command's, or the way back from it
	deletes
)

func (c *releaseCommand) add(cmd *cobra.Command) {
	c.out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	c.AddWriting(cmd)
	c.wait.Add(cmd, releaseWait)
}

func (c *releaseCommand) run(ctx context.Context, agent, name string, send func(context.Context, *cmdutil.Target, runnerapi.Key, runnerapi.WriteOptions) (runnerapi.Release, error)) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: name}
	return c.fleet.Each(ctx, c.CLI, agent, &c.out, func(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target) error {
		release, err := send(ctx, t, key, c.Options())
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if c.DryRun {
			a.Say("dry run: nothing was changed")
			return printRelease(a, release, &c.out)
		}
		return releaseOutcome(ctx, a, t, release, &c.wait, &c.out, c.does)
	})
}

// releaseOutcome waits, if requested, until the command's end, and returns an error unless the
// release is deployed.
func releaseOutcome(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, release runnerapi.Release, f *cmdutil.Waiting, out *cli.Output, does releaseDeed) error {
	key, sent := runnerapi.Key{Namespace: release.Namespace, Name: release.Name}, release.Revision
	if release.Busy() && !f.Wanted() {
		a.Say("accepted: %s; it continues. See how it ends with: pipeops-runner helm status %s %s -n %s --wait", key, t.Agent.Name, key.Name, key.Namespace)
		return printRelease(a, release, out)
	}
	if release.Busy() {
		waitCtx, cancel := context.WithTimeout(ctx, f.Limit)
		defer cancel()
		newest, err := watchRelease(waitCtx, a, t, key)
		switch {
		case problem.Is(err, runnerapi.CodeNotFound):
			release = release.Uninstalled()
		case ctx.Err() != nil:
			a.Say("stopped waiting; it continues. See how it ends with: pipeops-runner helm status %s %s -n %s --wait", t.Agent.Name, key.Name, key.Namespace)
			return &cmdutil.ExitError{Err: ctx.Err(), Code: cmdutil.ExitInterrupted, Told: true}
		case err != nil && waitCtx.Err() == nil:
			return cmdutil.At(t, key.String(), err)
		default:
			release = newest
		}
	}
	if err := printRelease(a, release, out); err != nil {
		return err
	}
	return releaseVerdict(a, t, sent, release, f.Limit, does)
}

func watchRelease(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, key runnerapi.Key) (runnerapi.Release, error) {
	said := ""
	return t.Releases().Wait(ctx, key, func(r runnerapi.Release) {
		if r.Busy() && r.Operation.Progress != "" && r.Operation.Progress != said {
			said = r.Operation.Progress
			a.Say("%s: %s", key, cli.Printable(said))
		}
	})
}

// releaseVerdict turns a release's state into the command's error. The revision is that which was
// there when the waiting began.
func releaseVerdict(a *cmdutil.CLI, t *cmdutil.Target, revision int, release runnerapi.Release, waited time.Duration, does releaseDeed) error {
	key := release.Namespace + "/" + release.Name
	switch {
	case release.Busy():
		return &cmdutil.ExitError{
			Err: fmt.Errorf("%s: %s has no outcome after %s: %s", t, key, waited, cmp.Or(cli.Printable(release.Operation.Progress), "it has just begun")), Code: cmdutil.ExitTimeout,
			Fix: fmt.Sprintf("it continues; see how it ends with: pipeops-runner helm status %s %s -n %s --wait", t.Agent.Name, release.Name, release.Namespace),
		}
	case release.Status == runnerapi.ReleaseFailed && does == deletes:
		return &cmdutil.ExitError{
			Err: fmt.Errorf("%s: release %s is not uninstalled: %s", t, key, cli.Printable(release.Description)), Code: cmdutil.ExitAppFailed,
			Fix: "remove what holds it, and delete the release again",
		}
	case release.Status == runnerapi.ReleaseFailed:
		return &cmdutil.ExitError{
			Err: fmt.Errorf("%s: release %s failed: %s", t, key, cli.Printable(release.Description)), Code: cmdutil.ExitAppFailed,
			Fix: fmt.Sprintf("deploy it again with what is missing, or go back: pipeops-runner helm rollback %s %s -n %s", t.Agent.Name, release.Name, release.Namespace),
		}
	}
	if u := release.Undone; u != nil && (does == deploys || u.Revision == revision) {
		return &cmdutil.ExitError{
			Err:  fmt.Errorf("%s: revision %d of release %s failed, and was rolled back: %s", t, u.Revision, key, cli.Printable(u.Description)),
			Code: cmdutil.ExitAppFailed, Fix: "correct what it says, and deploy it again",
		}
	}
	for _, o := range release.Objects {
		if o.State == runnerapi.ObjectFailed || o.State == runnerapi.ObjectMissing {
			return a.FailedObject(o.Kind+"/"+o.Name, o.Message, o.Diagnosis)
		}
	}
	return nil
}

func newReleaseRollback(a *cmdutil.CLI) *cobra.Command {
	c := &releaseCommand{CLI: a}
	var to runnerapi.ReleaseRollback
	cmd := &cobra.Command{
		Use: "rollback [AGENT] NAME", Short: "Roll back a release to an earlier revision",
		Example:           "  pipeops-runner helm rollback shop guide --to 1",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				return t.Releases().Rollback(ctx, key, to, opts)
			})
		},
	}
	c.add(cmd)
	c.fleet.Add(cmd)
	cmd.Flags().IntVar(&to.Revision, "to", 0, "revision to roll back to; 0 for the one deployed before")
	cmd.Flags().BoolVar(&to.ForceConflicts, "force-conflicts", false, "take over fields of the release's objects that other clients have set since")
	return cmd
}

func newReleaseDelete(a *cmdutil.CLI) *cobra.Command {
	c := &releaseCommand{CLI: a, does: deletes}
	cmd := &cobra.Command{
		Use: "delete [AGENT] NAME", Short: "Uninstall a release",
		Long:              "Uninstall a release, and wait until its objects and their pods are gone.",
		Example:           "  pipeops-runner helm delete shop guide",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				return t.Releases().Delete(ctx, key, opts)
			})
		},
	}
	c.add(cmd)
	return cmd
}

func printRelease(a *cmdutil.CLI, release runnerapi.Release, out *cli.Output) error {
	a.State(fmt.Sprintf("%s %s-%s", release.Status, release.Chart.Name, release.Chart.Version))
	for _, o := range release.Objects {
		for _, w := range o.Warnings {
			a.Say("warning: %s/%s: %s", o.Kind, o.Name, w)
		}
	}
	return out.Write(a.Out, release, func(w io.Writer) {
		tables.Releases(w, release)
		if release.Busy() {
			cli.Row(w, "AT WORK", release.Operation.Command, "by "+release.Operation.Runner, release.Operation.Progress)
		}
		for _, o := range release.Objects {
			cli.Row(w, o.Kind+"/"+o.Name, o.Hook, o.Change, string(o.State), o.Message)
		}
		if u := release.Undone; u != nil {
			cli.Row(w, "UNDONE", fmt.Sprintf("revision %d", u.Revision), u.Description)
		}
	})
}
