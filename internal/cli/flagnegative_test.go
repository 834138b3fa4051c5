package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func TestFlags_RefuseNegativeTime(t *testing.T) {
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error { return cli.NegativeTime(cmd) }}
	cmd.PersistentFlags().Duration("patience", 0, "")
	cmd.Flags().Int("replicas", 0, "")
	for args, want := range map[string]string{
		"--patience=-5s": "--patience: must not be negative; give a time such as 30s, 5m or 1h",
		"--patience=0":   "",
		"--replicas=-1":  "",
		"--patience=1ms": "",
	} {
		cmd.SetArgs([]string{args})
		err := cmd.Execute()
		if want == "" {
			assert.NoError(t, err, args)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
