package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
)

func newPrintConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "print-config",
		Short:   "Print the effective configuration and its errors",
		Long:    "Print the effective configuration, with secrets masked, and list the errors in it.",
		Args:    cobra.NoArgs,
		Example: "  pipeops-agent print-config --config /etc/pipeops/agent.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Getenv)
			if printErr := cfg.Print(cmd.OutOrStdout()); printErr != nil {
				return printErr
			}
			if err != nil {
				return wrong(fmt.Errorf("configuration:\n%w", err))
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
