package command

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newCertificate(a *app) *cobra.Command {
	return cli.Group("certificate", "See the certificates that the CA issued", newCertificateList(a))
}

func newCertificateList(a *app) *cobra.Command {
	var (
		out  cli.Output
		want administration.IssuedOptions
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the certificates that the CA issued",
		Long: `List the certificates that the CA issued, the newest first. The control plane records each
certificate before it hands it out. It keeps a record until 90 days after the certificate's end.

Without a filter, the list leaves out the certificates with which the control plane itself calls
agents. There is one every few minutes; --kind controlplane lists them.`,
		Example: `  pipeops-controlplane certificate list
  pipeops-controlplane certificate list --kind runner --name shops

  # Who had the certificate with the serial number in an audit record?
  pipeops-controlplane certificate list --serial 5c2f0d -o json`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Check(); err != nil {
				return cli.Usage(err)
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListCertificates.Do(ctx, admin, operatorapi.CertificatesInput{
					Kind: want.Kind, Name: want.Name, Serial: want.Serial, Limit: want.Limit,
				})
				if err != nil {
					return err
				}
				list := found.Items
				if a.none(out, len(list), "no such certificates were issued") {
					return nil
				}
				return out.Write(a.out, listOf(list), func(w io.Writer) { issuedTable(w, list) })
			})
		},
	}
	out.AddList(cmd)
	f := cmd.Flags()
	f.StringVar(&want.Kind, "kind", "", "only certificates of this kind: "+strings.Join(ca.Roles, ", "))
	f.StringVar(&want.Name, "name", "", "only certificates of this agent (name or ID), Runner, CA or server")
	f.StringVar(&want.Serial, "serial", "", "only certificates with this serial number, in hexadecimal")
	f.IntVar(&want.Limit, "limit", 100, "number of newest certificates to list")
	return cmd
}

func issuedTable(w io.Writer, list []administration.IssuedCertificate) {
	cli.Row(w, "ISSUED", "KIND", "NAME", "SERIAL", "UNTIL", "REASON")
	for _, c := range list {
		name := c.Name
		if c.AgentName != "" {
			name = c.AgentName + " (" + c.Name + ")"
		}
		cli.Row(w, cli.Time(c.IssuedAt), c.Role, name, c.Serial, cli.Time(c.NotAfter), c.Reason)
	}
}
