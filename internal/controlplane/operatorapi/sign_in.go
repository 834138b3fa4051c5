package operatorapi

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// signInCommand is the command of a sign-in by OpenID Connect in the audit log.
const signInCommand = "sign-in-by-openid"

// exchangeCommand is the command of an exchange of an ID token for a Runner's certificate.
const exchangeCommand = "exchange-id-token"

// joinCommand is the command of an agent's registration by a service-account token.
const joinCommand = "register-by-service-account"

// visitorCommand is the command of a visitor's sign-in for an App.
const visitorCommand = "sign-in-visitor"

// unnamed is in the audit log for who was refused before the identity provider named anyone.
const unnamed = "openid"

// SignIn is a sign-in by OpenID Connect, for the audit log.
type SignIn struct {
	// Operator is empty if the provider has identified no one.
	Operator string `json:"-"`
	Issuer   string `json:"issuer"`
	Subject  string `json:"subject,omitempty"`
	Role     string `json:"role,omitempty"`
}

// RecordSignIn records a sign-in, and carries it out unless it was refused. No session opens
// without a record.
func (s *Server) RecordSignIn(ctx context.Context, in SignIn, refused error, open func(context.Context) error) error {
	r := &record{AuditRecord: runnerapi.AuditRecord{Runner: cmp.Or(in.Operator, unnamed), Command: signInCommand, Name: in.Operator}}
	return s.recordProven(ctx, r, in, in.Operator != "", refused, open)
}

// RecordExchange records the exchange of an ID token for a Runner's certificate as RecordSignIn
// records a sign-in.
func (s *Server) RecordExchange(ctx context.Context, in exchange.Attempt, refused error, carryOut func(context.Context) error) error {
	r := &record{AuditRecord: runnerapi.AuditRecord{Runner: unnamed, Command: exchangeCommand, Name: in.Runner}}
	if in.Actor != "" {
		r.Runner = "runner/" + in.Runner
	}
	return s.recordProven(ctx, r, in, in.Actor != "", refused, carryOut)
}

// RecordJoin records an agent's registration by a service-account token as RecordSignIn records a
// sign-in.
func (s *Server) RecordJoin(ctx context.Context, in enrolment.Join, refused error, issue func(context.Context) error) error {
	r := &record{AuditRecord: runnerapi.AuditRecord{Runner: unnamed, Command: joinCommand, Name: in.Agent}}
	if in.Subject != "" {
		r.Runner = "token/" + in.Token
	}
	return s.recordProven(ctx, r, in, in.Subject != "", refused, issue)
}

// RecordVisitor records the sign-in of a visitor of an App, or why it was refused. Visitors are
// many, and not operators, so the number of records is bounded: more would push older ones out of
// the audit log. The control plane's log has them all.
func (s *Server) RecordVisitor(ctx context.Context, in visitors.SignIn, err error) {
	now, named := s.performer.now(), in.Subject != ""
	r := &record{AuditRecord: runnerapi.AuditRecord{
		Time: now.UTC(), RequestID: problem.RequestID(ctx), Runner: unnamed, Command: visitorCommand, Name: in.Host,
	}}
	if named {
		r.Runner = "visitor/" + cmp.Or(in.Email, in.Subject)
	}
	r.Arguments, _ = json.Marshal(in) // it is text alone
	s.performer.log.Info().Str("command", r.Command).Str("by", r.Runner).RawJSON("arguments", r.Arguments).Str("requestId", r.RequestID).Err(err).Msg("sign-in of a visitor")
	if s.visits.Wait(named, now) > 0 {
		return
	}
	s.visits.Failed(named, now)
	r.ended(err, now)
	s.performer.recorder.log.Record(r.AuditRecord)
}

// recordProven records what an ID token proves, or why it does not. named says whether it has
// proven someone.
func (s *Server) recordProven(ctx context.Context, r *record, in any, named bool, refused error, carryOut func(context.Context) error) error {
	recorder := s.performer.recorder
	r.Time, r.RequestID = recorder.now().UTC(), problem.RequestID(ctx)
	var err error
	if r.Arguments, err = json.Marshal(in); err != nil {
		return err
	}
	if refused != nil {
		s.recordRefusal(named, r, refused)
		return refused
	}
	if err := recorder.begin(ctx, r); err != nil {
		return err
	}
	err = carryOut(ctx)
	recorder.end(r, err)
	return err
}

// recordRefusal records a refused ID token. Anyone can cause one, so their number is bounded: more
// would push older records out of the audit log. The control plane's log has them all.
func (s *Server) recordRefusal(named bool, r *record, refused error) {
	s.performer.log.Warn().Str("command", r.Command).Str("by", r.Runner).RawJSON("arguments", r.Arguments).Str("requestId", r.RequestID).Err(refused).Msg("ID token refused")
	now := s.performer.now() // those without a name cannot use up the bound of those with one
	if s.refusedTokens.Wait(named, now) > 0 {
		return
	}
	s.refusedTokens.Failed(named, now)
	s.performer.end(r, refused)
}
