package main

import (
	"cmp"
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

func newRelease(a *app) *cobra.Command {
	return group("release", "Manage Helm releases in an agent's cluster",
		newReleaseDeploy(a), newReleaseStatus(a), newReleaseList(a), newReleaseHistory(a), newReleaseRollback(a), newReleaseDelete(a))
}

func newReleaseList(a *app) *cobra.Command {
	return listing[runnerapi.Release]{
		short: "List the Helm releases of a namespace", example: "pipeops-runner release list shop",
		items: (*client.Client).ListReleases,
		list:  func(items []runnerapi.Release) any { return runnerapi.ReleaseList{Items: items} },
		table: releaseTable,
	}.command(a)
}

func newReleaseHistory(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use: "history AGENT NAME", Short: "List the revisions of a release",
		Example:           "  pipeops-runner release history shop guide",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				list, err := t.ReleaseHistory(ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				return out.Write(a.out, runnerapi.ReleaseList{Items: list}, func(w io.Writer) { releaseTable(w, list...) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}

func newReleaseStatus(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	var wait waiting
	cmd := &cobra.Command{
		Use: "status AGENT NAME", Short: "Show a release and the command that works on it",
		Example:           "  pipeops-runner release status shop guide\n  pipeops-runner release status shop guide --wait=5m",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				release, err := t.GetRelease(ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				if wait.wanted() {
					return a.releaseOutcome(ctx, t, release, &wait, &out, looks)
				}
				return a.printRelease(release, &out)
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	wait.add(cmd, 0)
	cmd.Flags().Lookup("wait").NoOptDefVal = releaseWait.String()
	return cmd
}

// releaseWait is a minute more than a release's objects have to become ready.
const releaseWait = runnerapi.DefaultReleaseTimeout + time.Minute

// releaseCommand is what the commands have in common that change a release.
type releaseCommand struct {
	*app
	writing
	namespace string
	wait      waiting
	out       cli.Output
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
	namespaceFlag(cmd, &c.namespace)
	c.addWriting(cmd)
	c.wait.add(cmd, releaseWait)
}

func (c *releaseCommand) run(ctx context.Context, agent, name string, send func(context.Context, *target, runnerapi.Key, runnerapi.WriteOptions) (runnerapi.Release, error)) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: name}
	return c.on(ctx, agent, func(ctx context.Context, t *target) error {
		release, err := send(ctx, t, key, c.options())
		if err != nil {
			return at(t, key.String(), err)
		}
		if c.dryRun {
			c.say("dry run: nothing was changed")
			return c.printRelease(release, &c.out)
		}
		return c.releaseOutcome(ctx, t, release, &c.wait, &c.out, c.does)
	})
}

// releaseOutcome waits, if requested, until the command's end, and returns an error unless the
// release is deployed.
func (a *app) releaseOutcome(ctx context.Context, t *target, release runnerapi.Release, f *waiting, out *cli.Output, does releaseDeed) error {
	key, sent := runnerapi.Key{Namespace: release.Namespace, Name: release.Name}, release.Revision
	if release.Busy() && !f.wanted() {
		a.say("accepted: %s; it goes on. See how it ends with: pipeops-runner release status %s %s -n %s --wait", key, t.agent.Name, key.Name, key.Namespace)
		return a.printRelease(release, out)
	}
	if release.Busy() {
		waitCtx, cancel := context.WithTimeout(ctx, f.limit)
		defer cancel()
		newest, err := a.watchRelease(waitCtx, t, key)
		known := &runnerapi.Error{}
		switch {
		case errors.As(err, &known) && known.Code == runnerapi.CodeNotFound:
			release = release.Uninstalled()
		case ctx.Err() != nil:
			a.say("stopped waiting; it goes on. See how it ends with: pipeops-runner release status %s %s -n %s --wait", t.agent.Name, key.Name, key.Namespace)
			return &exitError{error: ctx.Err(), code: exitInterrupted, told: true}
		case err != nil && waitCtx.Err() == nil:
			return at(t, key.String(), err)
		default:
			release = newest
		}
	}
	if err := a.printRelease(release, out); err != nil {
		return err
	}
	return a.releaseVerdict(t, sent, release, f.limit, does)
}

func (a *app) watchRelease(ctx context.Context, t *target, key runnerapi.Key) (runnerapi.Release, error) {
	said := ""
	return t.WaitRelease(ctx, key, func(r runnerapi.Release) {
		if r.Busy() && r.Operation.Progress != "" && r.Operation.Progress != said {
			said = r.Operation.Progress
			a.say("%s: %s", key, cli.Printable(said))
		}
	})
}

// releaseVerdict turns a release's state into the command's error. The revision is that which was
// there when the waiting began.
func (a *app) releaseVerdict(t *target, revision int, release runnerapi.Release, waited time.Duration, does releaseDeed) error {
	key := release.Namespace + "/" + release.Name
	switch {
	case release.Busy():
		return &exitError{
			error: fmt.Errorf("%s: %s has no outcome after %s: %s", t, key, waited, cmp.Or(cli.Printable(release.Operation.Progress), "it has just begun")), code: exitTimeout,
			fix: fmt.Sprintf("it goes on; see how it ends with: pipeops-runner release status %s %s -n %s --wait", t.agent.Name, release.Name, release.Namespace),
		}
	case release.Status == runnerapi.ReleaseFailed && does == deletes:
		return &exitError{
			error: fmt.Errorf("%s: release %s is not uninstalled: %s", t, key, cli.Printable(release.Description)), code: exitAppFailed,
			fix: "remove what holds it, and delete the release again",
		}
	case release.Status == runnerapi.ReleaseFailed:
		return &exitError{
			error: fmt.Errorf("%s: release %s failed: %s", t, key, cli.Printable(release.Description)), code: exitAppFailed,
			fix: fmt.Sprintf("deploy it again with what is missing, or go back: pipeops-runner release rollback %s %s -n %s", t.agent.Name, release.Name, release.Namespace),
		}
	}
	if u := release.Undone; u != nil && (does == deploys || u.Revision == revision) {
		return &exitError{
			error: fmt.Errorf("%s: revision %d of release %s failed, and was rolled back: %s", t, u.Revision, key, cli.Printable(u.Description)),
			code:  exitAppFailed, fix: "correct what it says, and deploy it again",
		}
	}
	for _, o := range release.Objects {
		if o.State == runnerapi.ObjectFailed || o.State == runnerapi.ObjectMissing {
			return a.failedObject(o.Kind+"/"+o.Name, o.Message, o.Diagnosis)
		}
	}
	return nil
}

func newReleaseRollback(a *app) *cobra.Command {
	c := &releaseCommand{app: a}
	var to runnerapi.ReleaseRollback
	cmd := &cobra.Command{
		Use: "rollback AGENT NAME", Short: "Roll back a release to an earlier revision",
		Example:           "  pipeops-runner release rollback shop guide --to 1",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				return t.RollbackRelease(ctx, key, to, opts)
			})
		},
	}
	c.add(cmd)
	cmd.Flags().IntVar(&to.Revision, "to", 0, "revision to roll back to; 0 for the one deployed before")
	cmd.Flags().BoolVar(&to.ForceConflicts, "force-conflicts", false, "take over fields of the release's objects that other clients have set since")
	return cmd
}

func newReleaseDelete(a *app) *cobra.Command {
	c := &releaseCommand{app: a, does: deletes}
	cmd := &cobra.Command{
		Use: "delete AGENT NAME", Short: "Uninstall a release",
		Long:              "Uninstall a release, and wait until its objects and their pods are gone.",
		Example:           "  pipeops-runner release delete shop guide",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				return t.DeleteRelease(ctx, key, opts)
			})
		},
	}
	c.add(cmd)
	return cmd
}

func (a *app) printRelease(release runnerapi.Release, out *cli.Output) error {
	return out.Write(a.out, release, func(w io.Writer) {
		releaseTable(w, release)
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

func releaseTable(w io.Writer, list ...runnerapi.Release) {
	cli.Row(w, "NAMESPACE", "NAME", "REVISION", "STATUS", "CHART", "AGE", "DESCRIPTION")
	for _, r := range list {
		cli.Row(w, r.Namespace, r.Name, r.Revision, r.Status, r.Chart.Name+"-"+r.Chart.Version, cli.Age(r.UpdatedAt), r.Description)
	}
}
