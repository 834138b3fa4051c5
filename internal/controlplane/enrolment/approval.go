package enrolment

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// approvalRetry is how often an agent that waits for approval asks. deniedRetry is how often a
	// denied agent asks, because the operator may still approve it.
	approvalRetry = 5 * time.Second
	deniedRetry   = 10 * time.Minute
	// enrolmentLife is how long a pending registration lasts. An agent that keeps asking then
	// starts again, if its token is still valid.
	enrolmentLife = 24 * time.Hour
	// denialLife is how long a denial lasts.
	denialLife = 30 * 24 * time.Hour
	// SpareEnrolments is how many more pending registrations may wait per token than the token has
	// uses left; there are at most maxEnrolments. So the thief of a token can neither fill the
	// database nor keep out the agents that the token is for.
	SpareEnrolments = 10
	maxEnrolments   = 100
	// crowdedRetry is when to ask again if too many wait.
	crowdedRetry = time.Minute
	// noteAgain is how often it is recorded that an agent still asks.
	noteAgain = time.Minute
)

// enrolments is where pending registrations are looked up: the store, or a transaction in it.
type enrolments interface {
	EnrolmentOf(ctx context.Context, tokenID, key string) (store.Enrolment, error)
}

// standing returns the registration that a token and a key belong to, if it has not lapsed.
func standing(ctx context.Context, in enrolments, token store.Token, key string, now time.Time) (store.Enrolment, bool, error) {
	e, err := in.EnrolmentOf(ctx, token.ID, key)
	if errors.Is(err, store.ErrNotFound) {
		return e, false, nil
	}
	return e, err == nil && !lapsed(e, now), err
}

// lapsed reports whether a pending registration, or its denial, has expired.
func lapsed(e store.Enrolment, now time.Time) bool {
	switch e.State {
	case store.EnrolmentDenied:
		return now.Sub(e.DecidedAt) > denialLife
	case store.EnrolmentApproved: // the agent exists
		return now.Sub(e.DecidedAt) > enrolmentLife
	}
	return now.Sub(e.AskedAt) > enrolmentLife
}

func enrolmentState(ctx context.Context, in enrolments, token store.Token, key string, now time.Time) (*controlapi.EnrolmentState, error) {
	if key == "" {
		return nil, nil
	}
	e, stands, err := standing(ctx, in, token, key, now)
	if err != nil || !stands {
		return nil, err
	}
	return &controlapi.EnrolmentState{ID: e.ID, State: e.State, Reason: e.Reason}, nil
}

// hold makes a registration wait for the operator. It returns the answer for the agent; the error
// is for what rolls the transaction back. An approved registration does not come here: its agent
// exists.
func (e registration) hold(ctx context.Context, tx *store.Tx, token store.Token, agent store.Agent, req controlapi.RegisterRequest, key string) (answer *problem.Error, err error) {
	old, stands, err := standing(ctx, tx, token, key, e.now)
	switch {
	case err != nil:
		return nil, err
	case stands && old.ClusterUID != req.ClusterUID:
		return nil, copiedKey(old)
	case stands && old.State == store.EnrolmentDenied:
		return denied(old), nil
	case stands && old.State == store.EnrolmentPending && old.Name == req.Name:
		return answerAfter(pending(old), askedAgain(ctx, tx, old, e.now))
	}
	// A lapsed registration makes room. So does one that now has another name: the operator decides
	// only about what was shown.
	if old.ID != "" {
		if err := tx.DeleteEnrolment(ctx, old.ID); err != nil {
			return nil, err
		}
	}
	if ended := endedToken(token, e.now); ended != nil {
		return nil, ended
	}
	if err := e.free(ctx, tx, agent, req.Name); err != nil {
		return nil, err
	}
	waiting, err := tx.PendingEnrolments(ctx, token.ID, e.now.Add(-enrolmentLife))
	if err != nil {
		return nil, err
	}
	if waiting >= mostEnrolments(token) {
		return nil, crowded(token, waiting)
	}
	fresh := newEnrolment(ctx, token, req, key, e.now)
	return answerAfter(pending(fresh), tx.InsertEnrolment(ctx, fresh))
}

// answerAfter returns the answer, or the error that came before it.
func answerAfter(answer *problem.Error, err error) (*problem.Error, error) {
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func mostEnrolments(t store.Token) int {
	if t.MaxUses == 0 {
		return maxEnrolments
	}
	return min(maxEnrolments, max(0, t.MaxUses-t.Uses)+SpareEnrolments)
}

func newEnrolment(ctx context.Context, token store.Token, req controlapi.RegisterRequest, key string, now time.Time) store.Enrolment {
	req.CSR = "" // the agent sends it again
	return store.Enrolment{
		ID: store.NewID(), TokenID: token.ID, Key: key, Name: req.Name, ClusterUID: req.ClusterUID, Address: controlapi.OriginFrom(ctx).Address,
		Request: req, State: store.EnrolmentPending, AskedAt: now, LastAsked: now,
	}
}

// askedAgain keeps what the operator sees up to date, with few database writes.
func askedAgain(ctx context.Context, tx *store.Tx, e store.Enrolment, now time.Time) error {
	if now.Sub(e.LastAsked) < noteAgain {
		return nil
	}
	e.LastAsked, e.Address = now, controlapi.OriginFrom(ctx).Address
	return tx.UpdateEnrolment(ctx, e)
}

func copiedKey(e store.Enrolment) *problem.Error {
	return controlapi.Errorf(controlapi.CodeIdentityCloned,
		"delete the agent's stored key (the Secret pipeops-agent-identity, or identity.json in PIPEOPS_STATE_DIR) and start it again",
		"this agent's key has asked for approval as %s in another cluster, %s", e.Name, controlapi.ShortUID(e.ClusterUID))
}

func pending(e store.Enrolment) *problem.Error {
	return controlapi.Errorf(controlapi.CodeApprovalPending, "on the control plane: `pipeops-controlplane agent approve "+e.ID+"`",
		"the registration of %s, with key %s, waits for approval", e.Name, controlapi.ShortPrint(e.Key)).WithRetryAfter(approvalRetry)
}

func denied(e store.Enrolment) *problem.Error {
	why := ""
	if e.Reason != "" {
		why = ": " + e.Reason
	}
	return controlapi.Errorf(controlapi.CodeEnrolmentDenied,
		"ask the operator of the control plane, who can still do `pipeops-controlplane agent approve "+e.ID+"`: the agent asks again from time to time",
		"the registration of %s, with key %s, was denied at %s%s", e.Name, controlapi.ShortPrint(e.Key), e.DecidedAt.Format(time.RFC3339), why).WithRetryAfter(deniedRetry)
}

func crowded(t store.Token, waiting int) *problem.Error {
	return controlapi.Errorf(controlapi.CodeApprovalPending, "on the control plane: `pipeops-controlplane agent list` shows them, `agent approve` and `agent deny` make room",
		"%d registrations with the enrolment token %s wait for approval already", waiting, t.ID).WithRetryAfter(crowdedRetry)
}

// Forget deletes the registrations that have lapsed.
func Forget(ctx context.Context, s *store.Store, now time.Time) error {
	return s.ForgetEnrolments(ctx, now.Add(-enrolmentLife), now.Add(-denialLife))
}
