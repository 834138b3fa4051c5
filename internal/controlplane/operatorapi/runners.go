package operatorapi

import (
	"cmp"
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The calls about Runners.
var (
	ListRunners = Call[struct{}, List[Runner]]{
		Description{Method: "GET", Path: Prefix + "runners", ID: "list-runners", Role: administration.RoleViewer, Command: "runner list",
			Summary: "List Runners, including revoked ones"}, listRunners,
	}
	CreateRunner = Call[CreateRunnerInput, MadeRunner]{
		Description{Method: "POST", Path: Prefix + "runners", ID: "create-runner", Role: administration.RoleOperator, Command: "runner create",
			Summary: "Create a Runner and its credentials", Once: true, Hidden: []string{"brokerUrl"}}, createRunner,
	}
	GrantRunner = Call[GrantRunnerInput, MadeRunner]{
		Description{Method: "POST", Path: Prefix + "runners/{runner}/grant", ID: "grant-runner", Role: administration.RoleOperator, Command: "runner grant",
			Summary: "Change which agents a Runner may see and reach, with new credentials", Once: true, Hidden: []string{"brokerUrl"}}, grantRunner,
	}
	RevokeRunner = Call[RunnerInput, Done]{
		Description{Method: "POST", Path: Prefix + "runners/{runner}/revoke", ID: "revoke-runner", Role: administration.RoleOperator, Command: "runner revoke",
			Summary: "Revoke a Runner's certificate"},
		func(ctx context.Context, a *administration.Admin, in *RunnerInput) (Done, error) {
			return Done{}, a.Runners.Revoke(ctx, in.Runner)
		},
	}
)

// RunnerInput names a Runner.
type RunnerInput struct {
	Write
	Runner string `path:"runner" maxLength:"63"`
}

// CreateRunnerInput describes a Runner.
type CreateRunnerInput struct {
	Write
	Body CreateRunnerBody
}

// CreateRunnerBody describes a Runner.
type CreateRunnerBody struct {
	Name      string   `json:"name" minLength:"1" maxLength:"63"`
	TTL       Duration `json:"ttl,omitempty" doc:"Lifetime of each certificate, which the Runner renews; 24h if absent."`
	Agents    string   `json:"agents,omitempty" maxLength:"4096" doc:"Label selector of the agents that the Runner may see and reach; all if absent."`
	BrokerURL string   `json:"brokerUrl,omitempty" maxLength:"4096" doc:"RabbitMQ URL of the Runner's own account, a secret; the account that all Runners share if absent."`
	Replace   bool     `json:"replace,omitempty" doc:"Replace the credentials of an existing Runner."`

	OpenID *BindingBody `json:"openid,omitempty" doc:"Whose ID tokens the Runner exchanges for certificates of 15 minutes. It gets no credentials then. Leave out ttl and brokerUrl."`
}

// GrantRunnerInput names a Runner and its grant.
type GrantRunnerInput struct {
	Write
	Runner string `path:"runner" maxLength:"63"`
	Body   GrantRunnerBody
}

// GrantRunnerBody is what a Runner is granted.
type GrantRunnerBody struct {
	Agents    string  `json:"agents" maxLength:"4096" doc:"Label selector of the agents that the Runner may see and reach; empty for all."`
	BrokerURL string  `json:"brokerUrl,omitempty" maxLength:"4096" doc:"RabbitMQ URL of the Runner's own account, a secret; the account that all Runners share if absent."`
	From      *string `json:"from,omitempty" maxLength:"4096" doc:"The Runner's agents, as the list shows them, from which the new ones were made: with others the call is refused."`
}

// Runner is a Runner as lists show it.
type Runner struct {
	store.Runner
	TTL Duration `json:"ttl" doc:"Lifetime of each of its certificates."`
}

func listRunners(ctx context.Context, a *administration.Admin, _ *struct{}) (List[Runner], error) {
	runners, err := a.Runners.List(ctx)
	list := make([]Runner, len(runners))
	for i, r := range runners {
		list[i] = Runner{r, Duration(r.TTL)}
	}
	return listOf(list, err)
}

func grantOf(selector string) (credentials.Grant, error) {
	grant, err := credentials.ParseGrant(selector)
	if err != nil {
		return grant, problem.Errorf(problem.Invalid, "write a Kubernetes label selector, such as env=prod", "%s", err.Error()).WithField("agents")
	}
	return grant, nil
}

func createRunner(ctx context.Context, a *administration.Admin, in *CreateRunnerInput) (MadeRunner, error) {
	grant, err := grantOf(in.Body.Agents)
	if err != nil {
		return MadeRunner{}, err
	}
	opts := administration.RunnerOptions{
		Name: in.Body.Name, TTL: cmp.Or(time.Duration(in.Body.TTL), administration.DefaultRunnerTTL), Agents: grant, BrokerURL: in.Body.BrokerURL, Replace: in.Body.Replace,
	}
	if b := in.Body.OpenID; b != nil {
		if in.Body.TTL != 0 {
			return MadeRunner{}, problem.Errorf(problem.Invalid, "leave it out", "the certificates of a Runner that is bound to ID tokens are valid for %s", exchange.TTL).WithField("ttl")
		}
		opts.OpenID = &store.Binding{Issuer: b.Issuer, Audience: b.Audience, Claims: b.Claims}
	}
	made, err := a.Runners.Issue(ctx, opts)
	return madeRunner(made, opts.OpenID, err)
}

func madeRunner(c credentials.Credentials, to *store.Binding, err error) (MadeRunner, error) {
	if err != nil || to == nil {
		return MadeRunner{Credentials: c}, err
	}
	bound := *to
	bound.Audience = cmp.Or(bound.Audience, c.ControlPlane)
	return MadeRunner{c, &bound}, nil
}

func grantRunner(ctx context.Context, a *administration.Admin, in *GrantRunnerInput) (MadeRunner, error) {
	grant, err := grantOf(in.Body.Agents)
	if err != nil {
		return MadeRunner{}, err
	}
	made, err := a.Runners.Grant(ctx, in.Runner, grant, in.Body.BrokerURL, in.Body.From)
	if err != nil {
		return MadeRunner{}, err
	}
	now, err := a.Runners.Find(ctx, in.Runner)
	return madeRunner(made, now.OpenID, err)
}
