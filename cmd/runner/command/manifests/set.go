package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewSet returns the command set.
func NewSet(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("applyset", "Inspect and delete sets of manifests", newSetList(a), newSetGet(a), newSetDelete(a))
}

func newSetList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.ManifestSet]{
		Short: "List the sets of manifests of a namespace", Example: "pipeops-runner applyset list shop -n production",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.ManifestSet] { return c.Manifests() },
		List:  func(items []runnerapi.ManifestSet) any { return runnerapi.ManifestSetList{Items: items} },
		Table: tables.ManifestSets,
	}.Command(a)
}

func newSetGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use: "get [AGENT] NAME", Short: "Show a set's objects and the state of each",
		Example: "  pipeops-runner applyset get shop web-extras",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		set, err := t.Manifests().Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, "set "+key.String(), err)
		}
		return out.Write(a.Out, set, func(w io.Writer) {
			tables.ManifestSets(w, set)
			cli.Row(w, "OBJECT", "STATE", "MESSAGE")
			for _, o := range set.Objects {
				cli.Row(w, o.String(), string(o.State), o.Message)
			}
			for _, o := range set.Objects {
				if o.Diagnosis != nil {
					cli.Row(w, "Not well:", o.String())
					cmdutil.DiagnosisRows(w, o.Diagnosis)
				}
			}
		})
	})
	out.Add(cmd)
	return cmd
}

// setDeletion deletes a set.
type setDeletion struct {
	*cmdutil.CLI
	out   cli.Output
	wait  cmdutil.Waiting
	write cmdutil.Writing
}

func newSetDelete(a *cmdutil.CLI) *cobra.Command {
	c := &setDeletion{CLI: a}
	cmd := a.Named(&cobra.Command{
		Use: "delete [AGENT] NAME", Short: "Delete a set of manifests with all its objects",
		Long:    "Delete a set of manifests with all its objects, and wait until they and their pods are gone.",
		Example: "  pipeops-runner applyset delete shop web-extras",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error { return c.run(ctx, t, key) })
	c.out.Add(cmd)
	c.wait.Add(cmd, cmdutil.DefaultWait)
	c.write.AddWriting(cmd)
	return cmd
}

func (c *setDeletion) run(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
	result, err := t.Manifests().Delete(ctx, key, c.write.Options())
	if err != nil {
		return cmdutil.At(t, "set "+key.String(), err)
	}
	if c.wait.Wanted() && len(goingObjects(result)) > 0 {
		if result, err = c.untilGone(ctx, t, key, result); err != nil {
			return err
		}
	}
	if err := c.out.Write(c.Out, result, func(w io.Writer) { applyTable(w, result) }); err != nil {
		return err
	}
	going := goingObjects(result)
	switch {
	case result.Failed > 0 || result.Problem != nil:
		return &cmdutil.ExitError{Err: fmt.Errorf("set %s: %d of %d objects could not be deleted", key, result.Failed, len(result.Objects)), Code: cmdutil.ExitFailure}
	case len(going) > 0 && c.wait.Wanted():
		return &cmdutil.ExitError{
			Err:  fmt.Errorf("%s: set %s is not gone after %s: %s: %s", t, key, c.wait.Limit, going[0], cli.Printable(going[0].Message)),
			Code: cmdutil.ExitTimeout, Fix: "it continues in the cluster; delete the set again once nothing holds it",
		}
	case len(going) > 0:
		c.Say("accepted: the deletion of set %s; it continues in the cluster. Delete it again once its objects are gone", key)
		return nil
	}
	c.SayDeleted("set "+key.String(), c.write.DryRun)
	return nil
}

// untilGone deletes the set again and again: each call waits for its objects, and reports what
// holds them.
func (c *setDeletion) untilGone(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, first runnerapi.ApplyResult) (runnerapi.ApplyResult, error) {
	waitCtx, cancel := context.WithTimeout(ctx, c.wait.Limit)
	defer cancel()
	said, newest := map[runnerapi.ManifestRef]string{}, first
	for {
		for _, o := range goingObjects(newest) {
			if said[o.ManifestRef] != o.Message {
				said[o.ManifestRef] = o.Message
				c.Say("%s is being deleted; %s", o.ManifestRef, cli.Printable(o.Message))
			}
		}
		if len(goingObjects(newest)) == 0 || newest.Failed > 0 || !retry.Wait(waitCtx, cmdutil.GonePause) {
			return newest, ctx.Err()
		}
		now, err := t.Manifests().Delete(waitCtx, key, runnerapi.WriteOptions{})
		known := &runnerapi.Error{}
		switch {
		case errors.As(err, &known) && known.Code == runnerapi.CodeNotFound: // deleted meanwhile
			for n := range newest.Objects {
				newest.Objects[n].State, newest.Objects[n].Message = "", ""
			}
		case err == nil:
			newest = now
		case waitCtx.Err() == nil && (known.Code == "" || !known.Passing()):
			return newest, cmdutil.At(t, "set "+key.String(), err)
		}
	}
}

// goingObjects were deleted and are still there.
func goingObjects(r runnerapi.ApplyResult) (going []runnerapi.AppliedObject) {
	for _, o := range r.Objects {
		if o.Action == runnerapi.ApplyPruned && o.State != "" && !r.DryRun {
			going = append(going, o)
		}
	}
	return going
}
