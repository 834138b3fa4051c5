package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// tokenTimeout bounds one attempt to remove the enrolment token.
const tokenTimeout = 10 * time.Second

// tokenRemoval removes the enrolment token that the agent no longer needs.
type tokenRemoval struct {
	config config.Config
	kube   *kube.Client
	health *health
	log    zerolog.Logger
}

// run removes the enrolment token of a registered agent from its Secret: anyone who reads
// the token can enrol an agent with it. If the agent lacks the right, it logs that once and /readyz
// shows it. It never fails: the agent works either way.
func (r *tokenRemoval) run(ctx context.Context) error {
	c := r.config
	if c.Token == "" || c.TokenSecret == "" || c.PublicToken() {
		return nil
	}
	secret := r.kube.EnrolmentSecret(c.TokenSecret)
	for wait := newBackoff(); !r.settled(ctx, secret); {
		if !retry.Wait(ctx, wait.NextBackOff()) {
			return nil
		}
	}
	return nil
}

// settled tries to remove the token, and reports whether there is nothing to try again.
func (r *tokenRemoval) settled(ctx context.Context, secret kube.EnrolmentSecret) bool {
	once, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	removed, err := secret.Remove(once, r.config.Token)
	switch {
	case ctx.Err() != nil: // the agent stops
	case err == nil:
		if removed {
			r.log.Info().Stringer("from", secret).Msg("enrolment token removed: this agent is registered and needs none")
		}
		r.health.remark("token", nil)
	case kube.Passing(err) || kube.Changed(err):
		return false
	default:
		fix := fixTokenLeft(r.config.Namespace, r.config.TokenSecret)
		r.log.Warn().Err(err).Msg("the enrolment token stays in " + secret.String() + ", and this agent needs none (fix: " + fix + ")")
		left := "the enrolment token is still in " + secret.String() + ", and the agent may not remove it"
		r.health.remark("token", func() string { return left })
	}
	return true
}

// fixTokenLeft removes the token by hand, and leaves the Secret's other keys.
func fixTokenLeft(namespace, secret string) string {
	return fmt.Sprintf(`kubectl -n %s patch secret %s --type=merge -p '{"data":{"%s":null}}', or grant the agent the Role pipeops-agent-token of deployments/agent.yaml`,
		namespace, secret, kube.EnrolmentKey)
}
