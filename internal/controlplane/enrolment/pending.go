package enrolment

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Pending is what the operator decides about registrations that wait.
type Pending struct {
	Store *store.Store
	Now   func() time.Time
}

// List returns the pending registrations, those that have waited longest first.
func (a Pending) List(ctx context.Context) ([]store.Enrolment, error) {
	all, err := a.Store.Enrolments(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]store.Enrolment, 0, len(all))
	for _, e := range all {
		if e.State != store.EnrolmentPending || lapsed(e, a.Now()) {
			continue
		}
		old, err := a.Store.AgentOfCluster(ctx, e.ClusterUID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		e.Replaces = old.Name
		list = append(list, e)
	}
	return list, nil
}

// Approve turns a registration into an agent. It is named by its ID, or by its cluster's name
// if that is unique. A denied registration may still be approved.
func (a Pending) Approve(ctx context.Context, nameOrID string) (store.Enrolment, error) {
	at, err := datadir.LoadAdvertised(ctx, a.Store)
	if err != nil {
		return store.Enrolment{}, err
	}
	var e store.Enrolment
	err = a.Store.Update(ctx, func(tx *store.Tx) error {
		if e, err = findEnrolment(ctx, tx, nameOrID, a.Now(), store.EnrolmentPending, store.EnrolmentDenied); err != nil {
			return err
		}
		token, err := tx.Token(ctx, e.TokenID)
		if err != nil {
			return err
		}
		// The token may have expired meanwhile: it was valid when the agent asked.
		if token.MaxUses > 0 && token.Uses >= token.MaxUses {
			return problem.Errorf(problem.Conflict, "`pipeops-controlplane token rotate "+token.ID+"` makes a new one like it",
				"the token %s has no use left, so that %s cannot register with it", token.ID, e.Name)
		}
		place := registration{directory: discovery.Directory{AgentsDomain: at.AgentsDomain}, edge: at.Edge, now: a.Now(), id: e.ID}
		agent, err := agentOfCluster(ctx, tx, e.ClusterUID)
		if err != nil {
			return err
		}
		if err := place.free(ctx, tx, agent, e.Name); err != nil {
			return err
		}
		if agent, err = place.put(ctx, tx, agent, e.Request, token, e.Key); err != nil {
			return err
		}
		if err := tx.UseToken(ctx, token.ID, agent.ID, a.Now(), true); err != nil {
			return err
		}
		e.State, e.Reason, e.DecidedAt = store.EnrolmentApproved, "", a.Now()
		return tx.UpdateEnrolment(ctx, e)
	})
	if err != nil {
		return store.Enrolment{}, err
	}
	return e, nil
}

// maxReason bounds the reason for a denial, in bytes.
const maxReason = 512

// Deny refuses a pending registration. The agent receives the reason.
func (a Pending) Deny(ctx context.Context, nameOrID, reason string) (store.Enrolment, error) {
	var e store.Enrolment
	if reason = strings.Join(strings.Fields(reason), " "); len(reason) > maxReason {
		return store.Enrolment{}, problem.Errorf(problem.Invalid, "send a shorter one", "--reason: has %d bytes, at most %d are allowed", len(reason), maxReason)
	}
	err := a.Store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if e, err = findEnrolment(ctx, tx, nameOrID, a.Now(), store.EnrolmentPending); err != nil {
			return err
		}
		e.State, e.Reason, e.DecidedAt = store.EnrolmentDenied, reason, a.Now()
		return tx.UpdateEnrolment(ctx, e)
	})
	if err != nil {
		return store.Enrolment{}, err
	}
	return e, nil
}

// findEnrolment returns the named registration. A name that several registrations share is refused:
// one of them may be a thief's.
func findEnrolment(ctx context.Context, tx *store.Tx, nameOrID string, now time.Time, states ...string) (store.Enrolment, error) {
	all, err := tx.Enrolments(ctx)
	if err != nil {
		return store.Enrolment{}, err
	}
	for _, state := range states {
		var named []store.Enrolment
		for _, e := range all {
			if e.State != state || lapsed(e, now) {
				continue
			}
			if e.ID == nameOrID {
				return e, nil
			}
			if e.Name == nameOrID {
				named = append(named, e)
			}
		}
		switch len(named) {
		case 0:
		case 1:
			return named[0], nil
		default:
			return store.Enrolment{}, problem.Errorf(problem.Conflict, "give the ID of the one whose key is the agent's: `pipeops-controlplane agent list` shows them",
				"%d registrations wait with the name %s", len(named), nameOrID)
		}
	}
	return store.Enrolment{}, problem.Errorf(problem.NotFound, "`pipeops-controlplane agent list` lists those that do",
		"no registration with the name or ID %q waits for approval", nameOrID)
}
