package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newCAGet(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show the CA, its rotation and what the next step waits for",
		Example: `  pipeops-controlplane ca get

  # Names of the agents and Runners that the next step waits for:
  pipeops-controlplane ca get -o json | jq -r '.notReady[].name'`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				status, err := operatorapi.GetCA.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				if out.Table() {
					defer a.sayCA(status)
				}
				return out.Write(a.out, status, func(w io.Writer) { caTable(w, status) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func caTable(w io.Writer, status administration.CAStatus) {
	cli.Row(w, "CA", "ROLE", "FROM", "UNTIL", "FINGERPRINT")
	for _, c := range status.CAs {
		cli.Row(w, c.Name, c.Role, cli.Time(c.NotBefore), cli.Time(c.NotAfter), c.Fingerprint)
	}
}

// sayCA prints the next step, and who is not ready for it.
func (a *app) sayCA(status administration.CAStatus) {
	for _, w := range status.Warnings {
		a.say("Warning: %s", w)
	}
	if status.RootAway {
		a.say("The root CA's key was exported; rotate start and renewals of intermediate CAs need it: pipeops-controlplane ca root import FILE")
	}
	a.sayNotReady(status.NotReady)
	switch {
	case status.Stage == ca.Settled:
		a.say("No rotation is in progress. To begin one: pipeops-controlplane ca rotate start")
	case len(status.NotReady) > 0:
		a.say("Wait until the list above is empty, then: pipeops-controlplane ca rotate %s", stepAfter(status.Stage))
	default:
		a.say("All are ready. Next: pipeops-controlplane ca rotate %s", stepAfter(status.Stage))
	}
}

func stepAfter(stage ca.Stage) ca.Step {
	if stage == ca.Signing {
		return ca.Finish
	}
	return ca.Sign
}

func (a *app) sayNotReady(list []administration.Dependant) {
	for _, d := range list {
		who := d.Kind + " " + d.Name
		if d.ID != "" {
			who += fmt.Sprintf(" (%s, last seen %s)", d.ID, cli.Ago(d.LastSeen))
		}
		a.say("Not ready: %s", cli.Printable(who+" "+d.Reason))
	}
}
