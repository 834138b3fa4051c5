package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// tokenTimeout bounds one attempt to remove the enrolment token.
const tokenTimeout = 10 * time.Second

// noToken returns errNoToken and adds how to give a token to an agent that runs as this one does.
func (a *Agent) noToken() error {
	c := a.opts.Config
	if c.TokenSecret == "" {
		return fmt.Errorf("%w (fix: make a token with `pipeops-controlplane token create`, set AGENT_TOKEN or AGENT_TOKEN_FILE, and start the agent again)", errNoToken)
	}
	return fmt.Errorf("%w (fix: make a token with `pipeops-controlplane token create`, put it into Secret %s as %s, and restart the agent: "+
		"kubectl -n %s rollout restart deployment/pipeops-agent)", errNoToken, c.TokenSecret, kube.EnrolmentKey, c.Namespace)
}

// removeToken removes the enrolment token of a registered agent from its Secret: anyone who reads
// the token can enrol an agent with it. If the agent lacks the right, it logs that once and /readyz
// shows it. It never fails: the agent works either way.
func (a *Agent) removeToken(ctx context.Context) error {
	c := a.opts.Config
	if c.Token == "" || c.TokenSecret == "" {
		return nil
	}
	secret := a.kube.EnrolmentSecret(c.TokenSecret)
	for wait := newBackoff(); !a.tokenSettled(ctx, secret); {
		if !retry.Wait(ctx, wait.NextBackOff()) {
			return nil
		}
	}
	return nil
}

// tokenSettled tries to remove the token, and reports whether there is nothing to try again.
func (a *Agent) tokenSettled(ctx context.Context, secret kube.EnrolmentSecret) bool {
	once, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	removed, err := secret.Remove(once, a.opts.Config.Token)
	switch {
	case ctx.Err() != nil: // the agent stops
	case err == nil:
		if removed {
			a.log.Info().Stringer("from", secret).Msg("enrolment token removed: this agent is registered and needs none")
		}
		a.health.remark("token", nil)
	case kube.Passing(err) || kube.Changed(err):
		return false
	default:
		fix := fixTokenLeft(a.opts.Config.Namespace, a.opts.Config.TokenSecret)
		a.log.Warn().Err(err).Msg("the enrolment token stays in " + secret.String() + ", and this agent needs none (fix: " + fix + ")")
		left := "the enrolment token is still in " + secret.String() + ", and the agent may not remove it"
		a.health.remark("token", func() string { return left })
	}
	return true
}

// fixTokenLeft removes the token by hand, and leaves the Secret's other keys.
func fixTokenLeft(namespace, secret string) string {
	return fmt.Sprintf(`kubectl -n %s patch secret %s --type=merge -p '{"data":{"%s":null}}', or grant the agent the Role pipeops-agent-token of deployments/agent.yaml`,
		namespace, secret, kube.EnrolmentKey)
}
