// Package apps has the commands about Apps.
package apps

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewApps returns the command apps.
func NewApps(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.App]{
		Use: "apps", Short: "List the Apps in an agent's cluster",
		Example: "pipeops-runner apps shop\n  pipeops-runner apps shop -A -o json\n  pipeops-runner apps shop --sort-by .status.restarts",
		Of:      func(c *client.Client) cmdutil.Lister[runnerapi.App] { return c.Apps() },
		Every:   true,
		List:    func(items []runnerapi.App) any { return runnerapi.AppList{Items: items} },
		Table:   appTable,
	}.Command(a)
}

func appTable(w io.Writer, apps ...runnerapi.App) {
	cli.Row(w, "NAMESPACE", "NAME", "PHASE", "READY", "RESTARTS", "IMAGE", "AGE", "CAUSE")
	for _, app := range apps {
		var cause runnerapi.Cause
		if app.Status.Diagnosis != nil {
			cause = app.Status.Diagnosis.Cause
		}
		cli.Row(w, app.Namespace, app.Name, app.State(), app.Ready(), app.Status.Restarts, app.Spec.Image, cli.Age(app.CreatedAt), cause)
	}
}
