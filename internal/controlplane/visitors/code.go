package visitors

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/oauth2"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// codeLife is how long a code is good.
const codeLife = time.Minute

// issue keeps who a visitor is until the agent comes with the code that it returns.
func (v *Visitors) issue(ctx context.Context, r request, agentID string, person openid.Visitor) (code string, err error) {
	if err := v.counted(person.Subject); err != nil {
		return "", err
	}
	text, err := json.Marshal(controlapi.Visitor(person))
	if err != nil {
		return "", err
	}
	code = rand.Text()
	now := v.Now()
	return code, v.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.ForgetVisitorCodes(ctx, now); err != nil {
			return err
		}
		return tx.InsertVisitorCode(ctx, store.VisitorCode{
			Digest: digest(code), AgentID: agentID, Host: r.Host, Challenge: r.Challenge, Person: string(text), ExpiresAt: now.Add(codeLife),
		})
	})
}

// digest is what the database has of a code: a copy of it identifies no one to an agent.
func digest(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// Visitor implements controlapi.Backend. A code of the agent is used up, also by a mistake.
func (v *Visitors) Visitor(ctx context.Context, agentID string, req controlapi.VisitorRequest) (controlapi.Visitor, error) {
	var kept store.VisitorCode
	err := v.Store.Update(ctx, func(tx *store.Tx) (err error) {
		kept, err = tx.TakeVisitorCode(ctx, digest(req.Code), agentID)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return controlapi.Visitor{}, err
	}
	challenge := oauth2.S256ChallengeFromVerifier(req.Verifier)
	switch {
	case err != nil, kept.Host != req.Host, !verifierPattern.MatchString(req.Verifier),
		!idtoken.Same(kept.Challenge, challenge), !v.Now().Before(kept.ExpiresAt):
		return controlapi.Visitor{}, problem.Errorf(problem.Forbidden, fixAgain, "the code of this sign-in is wrong, was used, or is more than %s old", codeLife)
	}
	var person controlapi.Visitor
	return person, json.Unmarshal([]byte(kept.Person), &person)
}

// Forget deletes what is known of visitors for whom no agent came.
func (v *Visitors) Forget(ctx context.Context) error { return v.Store.ForgetVisitorCodes(ctx, v.Now()) }
