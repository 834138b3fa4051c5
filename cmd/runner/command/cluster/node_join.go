package cluster

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// plainToken is a token that no shell reads anything into; those of k3s are.
var plainToken = regexp.MustCompile(`^[A-Za-z0-9:._-]+$`)

// joined describes how a machine joins, with the token if it was requested.
type joined struct {
	runnerapi.JoinCommand
	Token string `json:"token,omitempty"`
}

func newNodeJoin(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var token bool
	cmd := &cobra.Command{
		Use: "join [AGENT]", Short: "Print the command that joins a worker to a cluster",
		Long: `Print the shell command with which a machine joins an agent's cluster as a worker, if the cluster
is k3s. join-worker.sh is part of every version.

The printed command does not contain the token: it reads the token from the variable K3S_TOKEN.

With --token, the printed command contains the token. This requires that the agent was given a
token and that the cluster owner's policy names the command get-join-token. Anyone holding the
token can make a node of the cluster.`,
		Example:           "  pipeops-runner node join shop\n  pipeops-runner node join shop --token",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				how, err := join(ctx, t, token)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, how, func(w io.Writer) { cli.Say(w, "%s", how.Command) })
			})
		},
	}
	out.Add(cmd)
	cmd.Flags().BoolVar(&token, "token", false, "include the token, which is a secret")
	return cmd
}

func join(ctx context.Context, t *cmdutil.Target, token bool) (joined, error) {
	command, err := t.Nodes().JoinCommand(ctx)
	if err != nil || !token {
		return joined{JoinCommand: command}, err
	}
	secret, err := t.Nodes().JoinToken(ctx)
	if err != nil {
		return joined{}, err
	}
	if !plainToken.MatchString(secret.Token) {
		return joined{}, errors.New("the agent's K3S_TOKEN is not a token of k3s: it has characters that a shell may read something into")
	}
	command.Command = strings.Replace(command.Command, `"$K3S_TOKEN"`, secret.Token, 1)
	return joined{JoinCommand: command, Token: secret.Token}, nil
}
