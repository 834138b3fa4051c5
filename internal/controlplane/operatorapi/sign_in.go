package operatorapi

import (
	"context"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// signInCommand is the command of a sign-in by OpenID Connect in the audit log.
const signInCommand = "sign-in-by-openid"

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
	recorder := s.performer.recorder
	r := &record{AuditRecord: runnerapi.AuditRecord{
		Time: recorder.now().UTC(), Runner: in.Operator, RequestID: problem.RequestID(ctx), Command: signInCommand, Name: in.Operator,
	}}
	if in.Operator == "" {
		r.Runner = unnamed
	}
	var err error
	if r.Arguments, err = json.Marshal(in); err != nil {
		return err
	}
	if refused != nil {
		s.recordRefusal(in, r, refused)
		return refused
	}
	if err := recorder.begin(ctx, r); err != nil {
		return err
	}
	err = open(ctx)
	recorder.end(r, err)
	return err
}

// recordRefusal records a refused sign-in. Anyone can cause one, so their number is bounded: more
// would push older records out of the audit log. The control plane's log has them all.
func (s *Server) recordRefusal(in SignIn, r *record, refused error) {
	s.performer.log.Warn().Str("operator", r.Runner).Str("subject", in.Subject).Str("requestId", r.RequestID).Err(refused).Msg("sign-in to the console refused")
	named, now := in.Operator != "", s.performer.now() // those without a name cannot use up the bound of those with one
	if s.refusedSignIns.Wait(named, now) > 0 {
		return
	}
	s.refusedSignIns.Failed(named, now)
	s.performer.end(r, refused)
}
