package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// binding are the flags of the ID tokens to which a Runner is bound.
type binding struct {
	issuer, audience string
	claims           []string
}

func (b *binding) add(f *pflag.FlagSet) {
	f.StringVar(&b.issuer, "oidc-issuer", "", "URL of the issuer whose ID tokens the Runner exchanges for certificates; it gets no credentials then")
	f.StringVar(&b.audience, "oidc-audience", "", "audience of the ID tokens (default the control plane's URL)")
	f.StringArrayVar(&b.claims, "claim", nil, "claim that the ID tokens must have, NAME=VALUE, such as repository=shop/web; may be repeated")
}

// given reports whether any of the flags is given.
func (b *binding) given() bool { return b.issuer != "" || b.audience != "" || len(b.claims) > 0 }

// alone refuses flags of credentials.
func (b *binding) alone(cmd *cobra.Command) error {
	if b.issuer == "" {
		return errors.New("--oidc-issuer is missing: the URL of the issuer of the ID tokens")
	}
	for _, flag := range []string{"output", "ttl", "broker-url-file"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s is for a Runner with credentials; leave it out with --oidc-issuer", flag)
		}
	}
	return nil
}

// body returns the binding as it is sent.
func (b *binding) body() (*operatorapi.BindingBody, error) {
	claims, err := operatorapi.ParseClaims(b.claims)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--claim: %w", err))
	}
	return &operatorapi.BindingBody{Issuer: b.issuer, Audience: b.audience, Claims: claims}, nil
}

// bind creates a Runner without credentials, and prints what its jobs need.
func (c *runnerCreate) bind(ctx context.Context, admin operatorapi.Target, name string) error {
	grant, _, err := c.parse()
	if err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	made, err := operatorapi.CreateRunner.Do(ctx, admin, operatorapi.CreateRunnerInput{Body: operatorapi.CreateRunnerBody{
		Name: name, Agents: grant.String(), Replace: c.force, OpenID: body,
	}})
	if err != nil {
		return err
	}
	if err := cli.Raw(c.out, []byte(made.Variables())); err != nil {
		return err
	}
	c.say("Runner %s, for %s, gets its certificates for ID tokens of %s with these claims. It has no credentials: set these variables, which are no secrets, in its jobs.",
		name, grantWords(grant), made.OpenID.Issuer)
	c.say("In the jobs' pipeline: docs/deployer/ci.md")
	return nil
}
