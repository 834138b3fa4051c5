package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/chartgrant"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newChartRevoke() *cobra.Command {
	var (
		place grants
		key   runnerapi.Key
	)
	cmd := &cobra.Command{
		Use:   "revoke NAME --namespace NAMESPACE",
		Short: "Take back what chart allow has granted for a release",
		Long: "Take back what chart allow has granted for a release: the rule of the policy, and the rights of the\n" +
			"agent. What the release has made stays, with its own rights: to remove that, delete the release\n" +
			"first.",
		Args:    cli.ExactArgs("NAME"),
		Example: "  pipeops-agent chart revoke ksm -n monitoring",
		RunE: func(cmd *cobra.Command, args []string) error {
			if key.Name = args[0]; key.Namespace == "" {
				return mistake(errors.New("no namespace: give --namespace NAMESPACE"))
			}
			store, k, _, err := place.open()
			if err != nil {
				return err
			}
			ruled := false
			source, err := place.place.edit(cmd.Context(), k, func(text []byte, _ string) ([]byte, error) {
				changed, err := policy.WithoutRule(text, chartgrant.RuleName(key))
				ruled = ruled || string(changed) != string(text)
				return changed, err
			})
			if err != nil {
				return err
			}
			found, err := store.Delete(cmd.Context(), key)
			if err != nil {
				return err
			}
			if !found && !ruled {
				return fmt.Errorf("nothing is allowed for release %s (fix: see what is: pipeops-agent chart list)", key)
			}
			record(cmd, k, runnerapi.AuditRecord{Command: "chart-revoke", Namespace: key.Namespace, Name: key.Name}, nil)
			cli.Say(cmd.OutOrStdout(), "Taken back: rule %q of %s, and the agent's rights for release %s", chartgrant.RuleName(key), source, key)
			return nil
		},
	}
	place.add(cmd)
	cmd.Flags().StringVarP(&key.Namespace, "namespace", "n", "", "namespace of the release")
	return cmd
}
