// Package exchange exchanges ID tokens of OpenID Connect for certificates of the Runners that are
// bound to them, so that a CI job needs no stored secret.
package exchange

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

const (
	// TTL is how long a certificate is valid. It is never renewed: a Runner exchanges a token
	// again.
	TTL = 15 * time.Minute
	// retryAfter is when an issuer that is away may be asked again.
	retryAfter = 5 * time.Second
)

const (
	fixAgain   = "have the job request a new ID token, and exchange it at once"
	fixBinding = "check the Runner's name; an operator binds a Runner with `pipeops-controlplane runner create NAME --oidc-issuer URL --claim NAME=VALUE`"
)

// Config is what exchanges need.
type Config struct {
	Store   *store.Store
	CA      *ca.CA
	Issuers *idtoken.Issuers
	// Record keeps an exchange in the audit log of operators, and carries it out unless it was
	// refused.
	Record func(ctx context.Context, a Attempt, refused error, carryOut func(context.Context) error) error
	// TrustDomain, AgentsDomain and Edge are what a Runner needs beside its certificate.
	TrustDomain, AgentsDomain string
	Edge                      func() string
	Log                       zerolog.Logger
	Now                       func() time.Time
}

// Attempt is an attempt to exchange a token, for the audit log.
type Attempt struct {
	Runner string `json:"runner"`
	Issuer string `json:"issuer,omitempty"`
	// Actor is empty if the token proved no one.
	Actor string `json:"actor,omitempty"`
}

// Exchange exchanges ID tokens for certificates.
type Exchange struct{ Config }

// proven is what a verified token proves.
type proven struct {
	openid.Proof
	actor string
}

// Serve serves login.ExchangePath.
func (e *Exchange) Serve(r *http.Request, in login.ExchangeRequest) (login.Exchanged, error) {
	ctx := r.Context()
	attempt := Attempt{Runner: printable.Shorten(printable.Text(in.Runner), 63)}
	var answer login.Exchanged
	req, runner, token, err := e.check(ctx, in, &attempt)
	if passing, ok := problem.Of(err); err != nil && (!ok || passing.Passing()) {
		return answer, err // it was neither accepted nor refused
	}
	err = e.Record(ctx, attempt, err, func(ctx context.Context) (err error) {
		answer, err = e.issue(ctx, runner, token, req)
		return err
	})
	return answer, err
}

// check returns what a request proves.
func (e *Exchange) check(ctx context.Context, in login.ExchangeRequest, attempt *Attempt) (req *x509.CertificateRequest, runner store.Runner, token proven, err error) {
	if req, err = ca.ParseRequest(in.Request); err != nil {
		return req, runner, token, problem.Errorf(problem.Invalid, problem.CorrectField, "%s", err.Error()).WithField("request")
	}
	// Unknown Runners and those without a binding get one answer: names are not for strangers.
	runner, err = e.Store.Runner(ctx, in.Runner)
	if errors.Is(err, store.ErrNotFound) || err == nil && runner.OpenID == nil {
		err = problem.Errorf(problem.Unauthorized, fixBinding, "there is no Runner %s that is bound to ID tokens", attempt.Runner)
	}
	if err != nil {
		return req, runner, token, err
	}
	attempt.Issuer = runner.OpenID.Issuer
	token, err = e.verify(ctx, runner.OpenID, in.Token)
	attempt.Actor = token.actor
	if err == nil && !runner.RevokedAt.IsZero() {
		err = revoked(runner)
	}
	return req, runner, token, err
}

func revoked(r store.Runner) error {
	return problem.Errorf(problem.Unauthorized, "an operator binds it again with `pipeops-controlplane runner create "+r.Name+" --force`, and the same flags",
		"Runner %s was revoked at %s", r.Name, r.RevokedAt.UTC().Format(time.RFC3339))
}

// verify returns what a token proves, if it is one of those to which a Runner is bound. With an
// error, the actor is set for a valid token of the issuer.
func (e *Exchange) verify(ctx context.Context, to *store.Binding, raw string) (proven, error) {
	if issuer := idtoken.UnverifiedIssuer(raw); issuer != "" && issuer != to.Issuer { // its keys would only be unknown
		return proven{}, invalid("its issuer (iss) is %q, and the Runner is bound to %q", printable.Shorten(issuer, maxShown), to.Issuer)
	}
	token, err := e.Issuers.Verify(ctx, to.Issuer, to.Audience, raw)
	if _, away := errors.AsType[*idtoken.AwayError](err); away {
		e.Log.Warn().Err(err).Str("issuer", to.Issuer).Msg("an ID token was not exchanged: its issuer cannot be used")
		return proven{}, problem.Errorf(problem.Unavailable, "try again in a moment; if it goes on, look for the reason in the control plane's log",
			"the issuer %s cannot be asked for its keys now", to.Issuer).WithRetryAfter(retryAfter)
	}
	if err != nil {
		return proven{}, invalid("%s", printable.Shorten(printable.Text(err.Error()), 3*maxShown))
	}
	proof, err := openid.ProofOf(token)
	if err != nil {
		return proven{}, invalid("%s", err.Error())
	}
	claims := claims{proof.Claims}
	return proven{proof, claims.actor(proof.Subject)}, claims.match(to.Claims)
}

func invalid(format string, args ...any) error {
	e := problem.Errorf(problem.Unauthorized, fixAgain, format, args...)
	e.Detail = "the ID token is not valid: " + e.Detail
	return e
}

// issue takes the token, and issues a certificate.
func (e *Exchange) issue(ctx context.Context, runner store.Runner, token proven, req *x509.CertificateRequest) (login.Exchanged, error) {
	extensions, err := credentials.Extensions(runner.Agents, token.actor)
	if err != nil {
		return login.Exchanged{}, err
	}
	key := hex.EncodeToString(sha256Of(req.RawSubjectPublicKeyInfo))
	if err := e.Store.Update(ctx, func(tx *store.Tx) error { return e.take(ctx, tx, runner, token, key) }); err != nil {
		return login.Exchanged{}, err
	}
	issued, err := e.CA.Runner(req, runner.Serial, runner.Name, credentials.RunnerURI(e.TrustDomain, runner.Name), TTL, "exchange: "+token.actor, extensions...)
	if err != nil {
		return login.Exchanged{}, err
	}
	return login.Exchanged{
		Answer: login.Answer{Certificate: issued.Certificate, CA: string(e.CA.Bundle())},
		Edge:   e.Edge(), AgentsDomain: e.AgentsDomain, TrustDomain: e.TrustDomain,
	}, nil
}

func sha256Of(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// take has a token be good for a key alone, unless the Runner was changed meanwhile. A client that
// lost the answer, or needs another certificate, sends the token again with the same key.
func (e *Exchange) take(ctx context.Context, tx *store.Tx, runner store.Runner, token proven, key string) error {
	now, err := tx.Runner(ctx, runner.Name)
	switch {
	case err != nil:
		return err
	case !now.RevokedAt.IsZero():
		return revoked(now)
	case now.Serial != runner.Serial:
		return problem.Errorf(problem.Busy, "send it again", "Runner %s was changed at this moment", runner.Name)
	}
	mine, err := token.Take(ctx, tx, key)
	if err != nil {
		return err
	}
	if !mine {
		return invalid("it was exchanged before, by the holder of another key")
	}
	now.ExpiresAt = e.Now().Add(TTL)
	return tx.PutRunner(ctx, now)
}

// Forget deletes the records of tokens that have ended.
func (e *Exchange) Forget(ctx context.Context) error { return e.Store.ForgetIDTokens(ctx, e.Now()) }
