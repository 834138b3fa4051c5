package command

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
)

func newGatewayKey(a *app) *cobra.Command {
	return cli.Group("key", "Export the key of gateways that are separate processes", newGatewayKeyExport(a))
}

func newGatewayKeyExport(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "export -o FILE",
		Short: "Write the key of gateways that are separate processes",
		Long: `Write the key of gateways that are separate processes, in a file that only you can read.

The key is derived from the CA's key, --ca-key-file, and is always the same for it. It decrypts the
gateway's certificates in the database, and connects to control planes for public traffic. It does
not reveal the CA's key.`,
		Example: "  pipeops-controlplane gateway key export --ca-key-file ./ca-key -o ./link-key",
		Args:    cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return cli.Usage(errors.New("-o is missing: the file to write, for example -o ./link-key"))
			}
			key, err := a.data.CAKey()
			if err != nil {
				return err
			}
			if !key.Given() {
				return cli.Usage(errors.New("--ca-key-file: is missing; separate gateways are for control planes that share a CA"))
			}
			if key, err = datadir.GatewayKey(datadir.Data{CAKey: key}); err != nil {
				return err
			}
			return writeNew(file, key.Text()+"\n")
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; it must not exist yet")
	return cmd
}

// writeNew writes a secret to a file that does not exist.
func writeNew(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
