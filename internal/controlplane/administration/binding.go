package administration

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

const (
	// MaxClaims bounds the claims to which a Runner is bound.
	MaxClaims = 20
	// MaxClaim bounds the name of a claim and its value, in bytes.
	MaxClaim = 512
)

// checkedClaims are claims that each token is checked for anyway.
var checkedClaims = []string{"iss", "aud", "exp", "nbf", "iat", "jti"}

func (o *RunnerOptions) validateBinding() error {
	switch b := o.OpenID; {
	case !idtoken.ValidIssuer(b.Issuer):
		return invalid("give the URL as the issuer's ID tokens have it in iss, such as https://token.actions.githubusercontent.com", "--oidc-issuer: %.200q is not https://HOST[:PORT][/PATH]", b.Issuer)
	case len(b.Audience) > MaxClaim:
		return invalid("", "--oidc-audience: is longer than %d bytes", MaxClaim)
	case len(b.Claims) == 0:
		return invalid("name what only your jobs have, such as --claim repository=OWNER/NAME", "--claim: is missing, and the issuer has tokens for others too")
	case len(b.Claims) > MaxClaims:
		return invalid("", "--claim: there are more than %d", MaxClaims)
	case o.BrokerURL != "":
		return invalid("leave it out", "--broker-url-file: a Runner that is bound to ID tokens gets no announcements")
	}
	for _, name := range slices.Sorted(maps.Keys(o.OpenID.Claims)) {
		value := o.OpenID.Claims[name]
		switch {
		case name == "" || value == "" || len(name) > MaxClaim || len(value) > MaxClaim:
			return invalid("give NAME=VALUE, such as repository=shop/web", "--claim: a name and a value have 1 to %d bytes", MaxClaim)
		case slices.Contains(checkedClaims, name):
			return invalid("leave it out", "--claim: %s is checked for each token", name)
		}
	}
	return nil
}

// bind adds a Runner that gets its certificates for ID tokens. All of them have the same serial
// number, which stands for the Runner.
func (a *Runners) bind(ctx context.Context, opts *RunnerOptions, at datadir.Advertised) (credentials.Credentials, error) {
	serial, err := ca.NewSerial()
	if err != nil {
		return credentials.Credentials{}, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return credentials.Credentials{}, err
	}
	to := *opts.OpenID
	to.Audience = cmp.Or(to.Audience, at.API)
	runner := store.Runner{Name: opts.Name, Serial: serial, Agents: opts.Agents.String(), CreatedAt: a.now(), TTL: exchange.TTL, OpenID: &to}
	if err := a.store.Update(ctx, func(tx *store.Tx) error { return a.putRunner(ctx, tx, runner, opts) }); err != nil {
		return credentials.Credentials{}, err
	}
	return credentials.Credentials{
		Runner: opts.Name, ControlPlane: at.API, Edge: store.SplitEdges(at.Edge)[0], AgentsDomain: at.AgentsDomain, TrustDomain: at.TrustDomain,
		CA: string(a.ca.Bundle()),
	}, nil
}
