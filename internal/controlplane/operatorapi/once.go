package operatorapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// changesFor is how long a key is remembered.
	changesFor = 24 * time.Hour
	// maxKeptAnswer bounds an answer that is kept for repetition.
	maxKeptAnswer = 1 << 20
)

// once carries out a change once for each key of an operator. A repeated one gets the same answer,
// which is decoded into out.
func (s *server) once(ctx context.Context, d *Description, operator string, in, out any, carryOut func() error) error {
	w := writeOf(in)
	if w == nil || w.IdempotencyKey == "" || w.DryRun {
		return carryOut()
	}
	mine, err := s.claim(ctx, d, operator, w.IdempotencyKey, in, out)
	if !mine {
		return err
	}
	err = carryOut()
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		if refusal(err) != nil { // nothing was changed
			s.note(s.store.ForgetOperatorChange(ctx, operator, w.IdempotencyKey))
		}
		return err
	}
	answer, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if d.Once || len(answer) > maxKeptAnswer {
		answer = nil
	}
	s.note(s.store.EndOperatorChange(ctx, operator, w.IdempotencyKey, string(answer), s.now()))
	return nil
}

// claim takes the key for this call. If it was taken before, it returns false, and decodes the
// earlier answer or returns why there is none.
func (s *server) claim(ctx context.Context, d *Description, operator, key string, in, out any) (mine bool, err error) {
	now, digest := s.now(), digestOf(d, in)
	if err := s.store.ForgetOperatorChanges(ctx, now.Add(-changesFor)); err != nil {
		return false, err
	}
	mine, err = s.store.BeginOperatorChange(ctx, store.OperatorChange{Operator: operator, Key: key, Digest: digest, BegunAt: now})
	if mine || err != nil {
		return mine, err
	}
	before, err := s.store.OperatorChange(ctx, operator, key)
	switch {
	case err != nil:
		return false, err
	case before.Digest != digest:
		return false, problem.Errorf(problem.Conflict, "send another change with another key", "the key was used for another change").WithField("header.Idempotency-Key")
	case before.DoneAt.IsZero() && now.Sub(before.BegunAt) < 2*callTimeout:
		return false, problem.Errorf(problem.Busy, "wait as long as Retry-After says, and send it again", "the change is in progress").WithRetryAfter(time.Second)
	case before.DoneAt.IsZero():
		return false, problem.Errorf(problem.Conflict, "look whether it was carried out, and use a new key if it was not", "the outcome of the change, which began at %s, is not known", before.BegunAt.Format(time.RFC3339))
	case before.Answer == "":
		return false, problem.Errorf(problem.Conflict, "if its answer was lost, make another in its place, and revoke this one",
			"the change was carried out at %s; its secret was returned once and is not kept", before.DoneAt.Format(time.RFC3339))
	}
	return false, json.Unmarshal([]byte(before.Answer), out)
}

func (s *server) note(err error) {
	if err != nil {
		s.log.Error().Err(err).Msg("operator API: failed to record the outcome of a change for its Idempotency-Key")
	}
}

// digestOf identifies a change by all that was sent.
func digestOf(d *Description, in any) string {
	text, err := json.Marshal(struct {
		ID string
		In any
	}{d.ID, in})
	if err != nil { // inputs are decoded JSON
		panic("operatorapi: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
