package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newConfig() *cobra.Command {
	return group("config", "Show the agent's configuration", newConfigGet())
}

func newConfigGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get",
		Short:   "Show the effective configuration and its errors",
		Long:    "Show the effective configuration, with secrets masked, and list the errors in it.",
		Args:    cli.ExactArgs(),
		Example: "  pipeops-agent config get --config /etc/pipeops/agent.yaml",
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
