package apps

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewRevisions returns the command revisions.
func NewRevisions(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use:               "revisions [AGENT] NAME",
		Short:             "List the revisions that an App can be rolled back to",
		Long:              "List the revisions that an App can be rolled back to, each with its author, time and changes.",
		Example:           "  pipeops-runner revisions shop web\n  pipeops-runner revisions shop web -o json",
		ValidArgsFunction: a.CompleteApp,
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		list, err := t.Apps().Revisions(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return out.Write(a.Out, runnerapi.RevisionList{Items: list}, func(w io.Writer) { revisionTable(w, list) })
	})
	out.AddList(cmd)
	return cmd
}

func revisionTable(w io.Writer, list []runnerapi.Revision) {
	cli.Row(w, "REVISION", "STATE", "AGE", "BY", "IMAGE", "CHANGES")
	for _, r := range list {
		cli.Row(w, r.Revision, revisionState(r), cli.Age(r.CreatedAt), r.By(), r.Image, revisionChanges(r))
	}
}

func revisionState(r runnerapi.Revision) string {
	var states []string
	if r.Current {
		states = append(states, "current")
	}
	if r.Healthy {
		states = append(states, "healthy")
	}
	return strings.Join(states, ",")
}

// revisionChanges returns a line: the revision that was restored, and what differs.
func revisionChanges(r runnerapi.Revision) string {
	var parts []string
	switch {
	case r.Undid > 0:
		parts = append(parts, fmt.Sprintf("undid the failed %d, back to %d", r.Undid, r.Restores))
	case r.Restores > 0:
		parts = append(parts, fmt.Sprintf("back to %d", r.Restores))
	}
	const shown = 4
	for i, c := range r.Changes {
		if i == shown {
			parts = append(parts, fmt.Sprintf("%d more", len(r.Changes)-shown))
			break
		}
		parts = append(parts, changeText(c))
	}
	return strings.Join(parts, "; ")
}

func changeText(c runnerapi.Change) string {
	switch {
	case c.From != "" && c.To != "":
		return fmt.Sprintf("%s %s -> %s", c.Field, c.From, c.To)
	case c.Kind == "added" && c.To != "":
		return fmt.Sprintf("%s %s added", c.Field, c.To)
	}
	return c.Field + " " + c.Kind
}
