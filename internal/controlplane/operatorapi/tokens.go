package operatorapi

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// The calls about enrolment tokens.
var (
	ListTokens = Call[struct{}, List[Token]]{
		Description{Method: "GET", Path: Prefix + "tokens", ID: "list-tokens", Role: administration.RoleViewer, Command: "token list",
			Summary: "List enrolment tokens, without their secrets"}, listTokens,
	}
	CreateToken = Call[CreateTokenInput, NewToken]{
		Description{Method: "POST", Path: Prefix + "tokens", ID: "create-token", Role: administration.RoleOperator, Command: "token create",
			Summary: "Create an enrolment token", Once: true}, createToken,
	}
	RotateToken = Call[RotateTokenInput, NewToken]{
		Description{Method: "POST", Path: Prefix + "tokens/{id}/rotate", ID: "rotate-token", Role: administration.RoleOperator, Command: "token rotate",
			Summary: "Replace an enrolment token", Once: true}, rotateToken,
	}
	RevokeToken = Call[TokenInput, Done]{
		Description{Method: "POST", Path: Prefix + "tokens/{id}/revoke", ID: "revoke-token", Role: administration.RoleOperator, Command: "token revoke",
			Summary: "Revoke an enrolment token"},
		func(ctx context.Context, a *administration.Admin, in *TokenInput) (Done, error) {
			return Done{}, a.Tokens.Revoke(ctx, in.ID)
		},
	}
)

// TokenInput names a token.
type TokenInput struct {
	Write
	ID string `path:"id" maxLength:"64"`
}

// CreateTokenInput describes a new token.
type CreateTokenInput struct {
	Write
	Body CreateTokenBody
}

// CreateTokenBody describes a new token.
type CreateTokenBody struct {
	Name    string            `json:"name,omitempty" maxLength:"256" doc:"Purpose of the token, shown in lists."`
	Labels  map[string]string `json:"labels,omitempty" doc:"Labels of the agents that register with the token."`
	Uses    int               `json:"uses,omitempty" minimum:"0" doc:"How many agents may register; 0 for any number."`
	TTL     Duration          `json:"ttl,omitempty" doc:"Lifetime; absent for unlimited."`
	Approve bool              `json:"approve,omitempty" doc:"Each registration waits for an approval."`

	Kubernetes *KubernetesBody `json:"kubernetes,omitempty" doc:"Makes a token without a secret, for agents of one cluster: they present service-account tokens."`
}

// KubernetesBody is a cluster whose service-account tokens stand for a secret.
type KubernetesBody struct {
	JWKS           string `json:"jwks" minLength:"1" maxLength:"32768" doc:"Public keys of the cluster's issuer, a JSON Web Key Set as text."`
	Issuer         string `json:"issuer,omitempty" maxLength:"512" doc:"What the cluster's tokens have in iss; the issuer of kubeadm and k3s if absent."`
	ServiceAccount string `json:"serviceAccount,omitempty" maxLength:"320" doc:"NAMESPACE:NAME; pipeops:pipeops-agent if absent."`
	Audience       string `json:"audience,omitempty" maxLength:"512" doc:"What the tokens must have in aud; the control plane's URL if absent."`
}

func (b *KubernetesBody) stored() *store.Kubernetes {
	if b == nil {
		return nil
	}
	return &store.Kubernetes{Issuer: b.Issuer, Audience: b.Audience, ServiceAccount: b.ServiceAccount, Keys: b.JWKS}
}

// RotateTokenInput names a token and says how long it stays.
type RotateTokenInput struct {
	Write
	ID   string `path:"id" maxLength:"64"`
	Body RotateTokenBody
}

// RotateTokenBody says how a token is replaced.
type RotateTokenBody struct {
	Overlap Duration `json:"overlap,omitempty" doc:"How long the old token stays valid."`
	JWKS    string   `json:"jwks,omitempty" maxLength:"32768" doc:"New keys of a token without a secret, a JSON Web Key Set as text."`
}

// NewToken is a token with its secret, if it has one, which is shown only here.
type NewToken struct {
	Text string `json:"token" doc:"The token with its secret, if it has one."`
	store.Token
	Address string `json:"address,omitempty" doc:"The control plane's address in the token; absent if it has never served."`
}

// Token is a token as lists show it.
type Token struct {
	store.Token
	State string `json:"state"`
	// UsesLeft is absent for any number.
	UsesLeft *int `json:"usesLeft,omitempty"`
	// LastUsedByName is the agent's name today.
	LastUsedByName string `json:"lastUsedByName,omitempty"`
}

func listTokens(ctx context.Context, a *administration.Admin, _ *struct{}) (List[Token], error) {
	tokens, err := a.Tokens.List(ctx)
	if err != nil {
		return List[Token]{}, err
	}
	agents, err := a.Agents.List(ctx)
	if err != nil {
		return List[Token]{}, err
	}
	names := map[string]string{}
	for _, g := range agents {
		names[g.ID] = g.Name
	}
	list := make([]Token, len(tokens))
	for i, t := range tokens {
		list[i] = Token{Token: t, State: t.State(a.Now()), LastUsedByName: names[t.LastUsedBy]}
		if t.MaxUses > 0 {
			left := max(0, t.MaxUses-t.Uses)
			list[i].UsesLeft = &left
		}
	}
	return listOf(list, nil)
}

func createToken(ctx context.Context, a *administration.Admin, in *CreateTokenInput) (NewToken, error) {
	b := in.Body
	token, kept, err := a.Tokens.Create(ctx, administration.TokenOptions{
		Name: b.Name, Labels: b.Labels, Uses: b.Uses, TTL: time.Duration(b.TTL), Approve: b.Approve, Kubernetes: b.Kubernetes.stored(),
	})
	if err != nil || a.IsDryRun() {
		return NewToken{}, err
	}
	return NewToken{token.Reveal(), kept, token.Address}, nil
}

func rotateToken(ctx context.Context, a *administration.Admin, in *RotateTokenInput) (NewToken, error) {
	token, kept, err := a.Tokens.Rotate(ctx, in.ID, time.Duration(in.Body.Overlap), in.Body.JWKS)
	if err != nil || a.IsDryRun() {
		return NewToken{}, err
	}
	return NewToken{token.Reveal(), kept, token.Address}, nil
}
