package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// awaited are the codes of answers that change without a change at the agent.
var awaited = []controlapi.Code{controlapi.CodeApprovalPending, controlapi.CodeEnrolmentDenied, controlapi.CodeServiceAccountRefused}

// untilDecided requests an identity until the operator has decided, if the token's registrations
// need approval. A denied agent asks rarely, at the control plane's interval, and does not end: it
// would be restarted and ask at once. The log shows once what it waits for, and its state shows it
// for as long as it waits.
func (e *enrolment) untilDecided(ctx context.Context, ask func() error) error {
	said := ""
	for {
		err := ask()
		p, wait := undecided(err)
		if p == nil || ctx.Err() != nil {
			return err
		}
		e.health.set("identity", p.Error())
		if p.Detail != said {
			said = p.Detail
			e.log.Warn().Str("code", string(p.Code)).Str("fix", p.Fix).Msg(p.Detail)
		}
		if !retry.Wait(ctx, retry.Jitter(wait)) {
			return ctx.Err()
		}
	}
}

// undecided returns the answer that a person, or the kubelet, has to be waited for, and how long
// until asking again; nil for any other.
func undecided(err error) (p *controlapi.Error, wait time.Duration) {
	if !errors.As(err, &p) || !slices.Contains(awaited, p.Code) {
		return nil, 0
	}
	return p, max(p.RetryAfter, time.Second)
}
