package ingress

import (
	"context"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SignIn is what visitors' sign-in needs of the agent. With its zero value, routes that want it are
// closed.
type SignIn struct {
	// Key returns the key of sessions, which all replicas share.
	Key func(ctx context.Context) (signin.Key, error)
	// Guard decides where the identity providers that Secrets name may be.
	Guard egress.Guard
	// ControlPlane is the provider of Apps that name none; nil for none.
	ControlPlane signin.Source
}

// controlPlaneID begins the ID of the control plane's provider. Sessions outlive another address of
// it, and no other issuer.
const controlPlaneID = "control-plane"

// noProvider is why a route is closed that wants the control plane's provider.
const noProvider = "the control plane has no identity provider for visitors: name a Secret with one in ingress.visitors.signIn.secret"

// identityProviders reads the settings of providers.
func (t *Router) identityProviders() *credentials[signin.OpenID] {
	return &credentials[signin.OpenID]{what: "the identity provider", part: func(data map[string][]byte) (map[string][]byte, string) {
		part := maps.Clone(data)
		maps.DeleteFunc(part, func(key string, _ []byte) bool { return !slices.Contains(signin.Keys, key) })
		return part, ""
	}, parse: func(part map[string][]byte) (*signin.OpenID, error) {
		return signin.NewOpenID(part, t.SignIn.Guard, t.now)
	}}
}

// signInOf returns how the visitors of an App sign in, or why that is not possible.
func (t *Router) signInOf(ctx context.Context, app runnerapi.Key, v *runnerapi.Visitors) (d *signin.Demand, why string) {
	if t.SignIn.Key == nil {
		return nil, "this agent has no sign-in"
	}
	key, err := t.SignIn.Key(ctx)
	if err != nil {
		t.log.Warn().Err(err).Msg("failed to read the key of visitors' sessions; retrying")
		return nil, "the agent cannot read the key of visitors' sessions"
	}
	d = &signin.Demand{App: app.String(), Key: key}
	if v.ServiceTokensSecret != "" {
		if d.Tokens, why = t.tokens.get(ctx, t, runnerapi.Key{Namespace: app.Namespace, Name: v.ServiceTokensSecret}); why != "" {
			return nil, why
		}
	}
	if v.SignIn == nil {
		return d, ""
	}
	d.Emails, d.Groups = v.SignIn.Emails, v.SignIn.Groups
	if v.SignIn.Secret != "" {
		provider, why := t.providers.get(ctx, t, runnerapi.Key{Namespace: app.Namespace, Name: v.SignIn.Secret})
		if why != "" {
			return nil, why
		}
		d.Provider, d.ProviderID = provider, provider.ID()
		return d, ""
	}
	if t.SignIn.ControlPlane == nil {
		return nil, noProvider
	}
	if d.Provider, why = t.SignIn.ControlPlane(); why != "" {
		return nil, why
	}
	d.ProviderID = controlPlaneID
	if named, ok := d.Provider.(interface{ ID() string }); ok {
		d.ProviderID += "\n" + named.ID()
	}
	return d, ""
}
