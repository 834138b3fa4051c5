package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// untilDecided asks for an identity until the operator has decided, where the token's
// registrations wait for that. An agent that was denied asks seldom, as the control
// plane tells it, instead of ending: it would be started again and ask at once. What
// it waits for is said once in the log, and in its state for as long as it waits.
func (a *Agent) untilDecided(ctx context.Context, ask func() error) error {
	said := ""
	for {
		err := ask()
		p, wait := undecided(err)
		if p == nil || ctx.Err() != nil {
			return err
		}
		a.health.set("identity", p.Error())
		if p.Detail != said {
			said = p.Detail
			a.log.Warn().Str("code", string(p.Code)).Str("fix", p.Fix).Msg(p.Detail)
		}
		if !retry.Wait(ctx, retry.Jitter(wait)) {
			return ctx.Err()
		}
	}
}

// undecided returns the answer that a person has to be waited for, and how long until asking again;
// nil for any other.
func undecided(err error) (p *controlapi.Error, wait time.Duration) {
	if !errors.As(err, &p) || p.Code != controlapi.CodeApprovalPending && p.Code != controlapi.CodeEnrolmentDenied {
		return nil, 0
	}
	return p, max(p.RetryAfter, time.Second)
}
