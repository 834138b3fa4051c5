package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newTokenRotate(a *app) *cobra.Command {
	var (
		overlap time.Duration
		keys    string
		out     cli.Output
	)
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace an enrolment token and print the new one once",
		Long: `Replace an enrolment token with a new one that has the same name, labels and limits. The new
token has all its uses and its whole lifetime left. The old token ends at once, or after
--overlap. The overlap gives installers time to switch to the new token.

Agents that registered with the old token stay, and pending registrations continue to wait. If
the token was stolen, revoke it instead. That also ends pending registrations, which may come
from another cluster.

For a token of "token create --kubernetes-jwks", whose cluster has new keys, give those with the
same flag.`,
		Example: `  pipeops-controlplane token rotate x3f2k7aabbccddee
  pipeops-controlplane token rotate x3f2k7aabbccddee --overlap 48h
  kubectl get --raw /openid/v1/jwks | pipeops-controlplane token rotate x3f2k7aabbccddee --kubernetes-jwks -`,
		Args: cli.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			jwks, err := readKeys(cmd, keys)
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				token, err := operatorapi.RotateToken.Do(ctx, admin, operatorapi.RotateTokenInput{
					ID: args[0], Body: operatorapi.RotateTokenBody{Overlap: operatorapi.Duration(overlap), JWKS: jwks},
				})
				if err != nil {
					return err
				}
				if err := a.printToken(token, out); err != nil {
					return err
				}
				end := "has ended"
				if overlap > 0 {
					end = "ends " + cli.Until(time.Now().Add(overlap))
				}
				a.say("token %s came in the place of %s, which %s", token.ID, args[0], end)
				return nil
			})
		},
	}
	cli.DurationVar(cmd.Flags(), &overlap, "overlap", 0, "how long the old token stays valid")
	cmd.Flags().StringVar(&keys, "kubernetes-jwks", "", "file with the new keys of the cluster, or - for the standard input")
	out.Add(cmd)
	return cmd
}
