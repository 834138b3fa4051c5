package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newAgentLabel(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "label AGENT KEY=VALUE... [KEY-...]",
		Short: "Set or remove labels of an agent",
		Long: `Set labels of an agent with KEY=VALUE, or remove them with KEY-.

Labels decide which Runners see and reach the agent. When a Runner's grant no longer selects
the agent, that Runner's open connections to it are closed within seconds.

An agent that registers again gets the labels of its token.`,
		Example: "  pipeops-controlplane agent label shop env=prod region=eu\n  pipeops-controlplane agent label shop env-",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usage(errors.New("agent label takes AGENT and at least one KEY=VALUE or KEY-"))
			}
			set, remove, err := labelChanges(args[1:])
			if err != nil {
				return cli.Usage(err)
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				agent, err := operatorapi.LabelAgent.Do(ctx, admin, operatorapi.LabelAgentInput{
					Agent: args[0], Body: operatorapi.LabelAgentBody{Set: set, Remove: remove},
				})
				if err != nil {
					return err
				}
				a.say("agent %s (%s) has %s", agent.Name, agent.ID, cmp.Or(cli.Labels(agent.Labels), "no labels"))
				return nil
			})
		},
	}
}

// labelChanges reads what kubectl label takes.
func labelChanges(args []string) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		switch {
		case sets && key != "":
			set[key] = value
		case !sets && len(arg) > 1 && strings.HasSuffix(arg, "-"):
			remove = append(remove, strings.TrimSuffix(arg, "-"))
		default:
			return nil, nil, fmt.Errorf("%q is neither KEY=VALUE nor KEY-", arg)
		}
	}
	return set, remove, nil
}
