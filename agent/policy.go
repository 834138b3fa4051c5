package agent

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

// newPolicy returns the policy of the cluster's owner, not read yet.
func newPolicy(c config.Config, k *kube.Client) *policy.Policy {
	if c.PolicyFile != "" {
		return policy.New(c.PolicyFile)
	}
	return policy.New(k.PolicySource())
}

// watchPolicy keeps the policy the one that its owner has set, until ctx ends.
func (a *Agent) watchPolicy(ctx context.Context) error {
	a.health.ask("policy", func() string {
		if a.policy.Known() {
			return stateOK
		}
		return "reading " + a.policy.State().Source
	})
	if file := a.opts.Config.PolicyFile; file != "" {
		return policy.WatchFile(ctx, file, a.setPolicy)
	}
	return a.kube.WatchPolicy(ctx, func(data map[string]string, err error) {
		if err != nil {
			a.setPolicy(policy.Document{}, err)
			return
		}
		a.setPolicy(policy.FromConfigMap(data))
	})
}

func (a *Agent) setPolicy(doc policy.Document, err error) {
	if !a.policy.Set(doc, err) {
		return
	}
	a.news.recheck() // the set of trusted Runners may have changed
	a.routes.Soon()  // and whether the public is let in
	s := a.policy.State()
	if err != nil {
		a.log.Error().Err(err).Str("source", s.Source).Msg("invalid policy: denying all commands until it is corrected")
		return
	}
	a.log.Info().Str("source", s.Source).Str("state", s.State).Int("rules", len(doc.Rules)).Msg("loaded the policy")
}
