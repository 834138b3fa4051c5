package operatorapi

import (
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// registryLogin is the type of a Secret with the credentials of a registry.
const registryLogin = "kubernetes.io/dockerconfigjson"

func listAppChoices(ctx context.Context, a *administration.Admin, in *AppChoicesInput) (AppChoices, error) {
	return onAgent(ctx, a, AppKey{Agent: in.Agent}, func(c *client.Client) (out AppChoices, err error) {
		out = AppChoices{Namespaces: []string{}, SecretKeys: []string{}, ConfigMapKeys: []string{}, PullSecrets: []string{}}
		agent, err := a.Agents.Get(ctx, in.Agent, 0)
		if err != nil {
			return out, err
		}
		at, err := a.Advertised(ctx)
		if err != nil {
			return out, err
		}
		out.AgentID, out.AgentName, out.GatewayDomain = agent.Agent.ID, agent.Agent.Name, at.GatewayDomain
		namespaces, err := c.Namespaces().List(ctx)
		if err = unlessForbidden(err); err != nil {
			return out, err
		}
		for _, n := range namespaces {
			out.Namespaces = append(out.Namespaces, n.Name)
		}
		slices.Sort(out.Namespaces)
		if in.Namespace == "" {
			return out, nil
		}
		return out, out.addKeys(ctx, c, in.Namespace)
	})
}

// addKeys adds what a namespace has. Values are never read.
func (o *AppChoices) addKeys(ctx context.Context, c *client.Client, namespace string) error {
	secrets, err := c.Secrets().List(ctx, namespace)
	if err = unlessForbidden(err); err != nil {
		return err
	}
	for _, s := range secrets {
		if s.Type == registryLogin {
			o.PullSecrets = append(o.PullSecrets, s.Name)
			continue
		}
		for _, k := range s.Keys {
			o.SecretKeys = append(o.SecretKeys, s.Name+"/"+k.Key)
		}
	}
	maps, err := c.ConfigMaps().List(ctx, namespace)
	for _, m := range maps {
		for _, k := range m.Keys {
			o.ConfigMapKeys = append(o.ConfigMapKeys, m.Name+"/"+k.Key)
		}
	}
	return unlessForbidden(err)
}

// unlessForbidden returns an error unless it says that the Runner may not read this.
func unlessForbidden(err error) error {
	if problem.Is(err, problem.Forbidden) || problem.Is(err, runnerapi.CodePolicyDenied) || problem.Is(err, runnerapi.CodeNamespaceNotManaged) {
		return nil
	}
	return err
}
