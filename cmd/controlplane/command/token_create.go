package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/preset"
)

func newTokenCreate(a *app) *cobra.Command {
	var opts administration.TokenOptions
	var out cli.Output
	var chosen string
	var trusted kubernetesTrust
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an enrolment token and print it once",
		Long: `Create an enrolment token and print it. The token cannot be shown again.

The token contains the control plane's address and the fingerprint of its CA. With them, an agent
finds the control plane, and verifies the very first connection without a copied file.

With --offline, you can create a token before the control plane first serves. The command then
creates the data directory, which no other command except serve does. Such a token has no address.

With --approve, anyone holding the token can only ask for registration. The agent waits until
"agent approve" names it. "agent list" lists the pending registrations, each with the fingerprint of
its key. The agent's log shows the same fingerprint.

With --kubernetes-jwks, the token has no secret, and anyone may read it. Agents of one cluster
register with it: they present a service-account token of their pod, which these keys verify. In
that cluster, "kubectl get --raw /openid/v1/jwks" prints the keys, and
"kubectl get --raw /.well-known/openid-configuration" the issuer.`,
		Example: `  pipeops-controlplane token create
  pipeops-controlplane token create --name fleet --uses 50 --ttl 720h --label region=eu
  pipeops-controlplane token create --approve --policy viewer
  kubectl get --raw /openid/v1/jwks | pipeops-controlplane token create --kubernetes-jwks - --uses 0 --ttl 0
  AGENT_TOKEN=$(pipeops-controlplane token create)`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Check(); err != nil {
				return cli.Usage(err)
			}
			if chosen != "" && !slices.Contains(preset.Names(), chosen) {
				return cli.Usage(fmt.Errorf("--policy: %.40q is none of %s", chosen, strings.Join(preset.Names(), ", ")))
			}
			kubernetes, err := trusted.body(cmd)
			if err != nil {
				return err
			}
			return a.firstAdmin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				return a.createToken(ctx, admin, opts, kubernetes, chosen, out)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Name, "name", "", "purpose of the token, shown in lists")
	f.IntVar(&opts.Uses, "uses", 1, "number of agents that may register with the token; 0 for any number")
	cli.DurationVar(f, &opts.TTL, "ttl", 24*time.Hour, "lifetime of the token; 0 for unlimited")
	f.StringToStringVar(&opts.Labels, "label", nil, "labels of the agents that register with the token")
	f.BoolVar(&opts.Approve, "approve", false, "hold each registration until the operator approves it with agent approve")
	f.StringVar(&chosen, "policy", "", "put a preset of the policy into the line to run on the machine: viewer, deploy or full; the machine's owner decides")
	trusted.add(f)
	out.Add(cmd)
	return cmd
}

func (a *app) createToken(ctx context.Context, admin operatorapi.Target, opts administration.TokenOptions, kubernetes *operatorapi.KubernetesBody, chosen string, out cli.Output) error {
	token, err := operatorapi.CreateToken.Do(ctx, admin, operatorapi.CreateTokenInput{Body: operatorapi.CreateTokenBody{
		Name: opts.Name, Labels: opts.Labels, Uses: opts.Uses, TTL: operatorapi.Duration(opts.TTL), Approve: opts.Approve, Kubernetes: kubernetes,
	}})
	if err != nil {
		return err
	}
	err = a.printToken(token, out)
	switch {
	case err != nil || !out.Table():
	case token.Kubernetes != nil:
		a.say("The token has no secret. Its agents run as %s, with a service-account token for the audience %s: docs/reference/identities.md",
			token.Kubernetes.ServiceAccount, token.Kubernetes.Audience)
	case token.Address == "":
		a.say("The token has no address of the control plane, because it has never served. Set PIPEOPS_CONTROL_PLANE_URL beside the token.")
	default:
		a.say("Next, on the machine: curl -fsSL %s | AGENT_TOKEN=(the token) CLUSTER_NAME=(a name)%s bash", operatorapi.Installer, policySetting(chosen))
	}
	return err
}

// policySetting returns the installer's setting of a preset, with a space before it. The token does
// not have it: the owner of the machine reads the line, and decides.
func policySetting(chosen string) string {
	if chosen == "" {
		return ""
	}
	return " PIPEOPS_POLICY=" + chosen
}

// printToken prints a token's secret, which is shown only here.
func (a *app) printToken(token operatorapi.NewToken, out cli.Output) error {
	return out.Write(a.out, token, func(w io.Writer) { cli.Say(w, "%s", token.Text) })
}
