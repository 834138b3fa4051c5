package controlapi

import (
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Error is the one error type of this wire; it travels as a problem detail
// (RFC 9457).
type Error = problem.Error

// Code is the stable name of an error on this wire.
type Code = problem.Code

// The codes of this wire, beside those that every wire has.
const (
	CodeTokenUnknown Code = "token_unknown" // never existed, mistyped or deleted
	CodeTokenExpired Code = "token_expired"
	CodeTokenRevoked Code = "token_revoked"
	CodeTokenUsedUp  Code = "token_used_up"
	CodeTokenRotated Code = "token_rotated" // it has a successor
	// CodeServiceAccountRefused is a service-account token that a token without a secret does not
	// trust: the agent sends it again, as its file then is, after Retry-After.
	CodeServiceAccountRefused Code = "service_account_refused"
	CodeRevoked               Code = "agent_revoked"
	CodeAgentUnknown          Code = "agent_unknown" // the control plane does not know this agent
	CodeNameTaken             Code = "name_taken"    // another cluster has this name
	CodeClockSkew             Code = "clock_skew"

	// CodeApprovalPending is a registration that waits for the operator: the agent asks
	// again, with the same key, after Retry-After.
	CodeApprovalPending Code = "approval_pending"
	// CodeEnrolmentDenied is one that the operator did not approve.
	CodeEnrolmentDenied Code = "enrolment_denied"
	// CodeIdentityCloned is an agent's identity in a cluster that is not the agent's.
	CodeIdentityCloned Code = "identity_cloned"

	// CodeCertificateExpired asks the agent to prove its old key (Recover).
	CodeCertificateExpired Code = "certificate_expired"
	// CodeCertificateUnknown is a client certificate of another CA, or none.
	CodeCertificateUnknown Code = "certificate_unknown"
)

// The codes that the client makes of what kept it from getting an answer. They
// have no HTTP status, except that being unreachable passes.
const (
	CodeUnreachable  Code = "unreachable"
	CodeWrongCA      Code = "wrong_ca"
	CodeNameMismatch Code = "name_mismatch"
)

// MaxClockSkew is how far the clocks of an agent and the control plane may be
// apart: certificates are issued and checked by both.
const MaxClockSkew = 5 * time.Minute

var statusOf = map[Code]int{
	CodeTokenUnknown: http.StatusUnauthorized, CodeTokenExpired: http.StatusUnauthorized,
	CodeTokenRevoked: http.StatusUnauthorized, CodeTokenUsedUp: http.StatusUnauthorized,
	CodeTokenRotated: http.StatusUnauthorized, CodeApprovalPending: http.StatusForbidden,
	CodeEnrolmentDenied: http.StatusForbidden, CodeIdentityCloned: http.StatusConflict,
	CodeServiceAccountRefused: http.StatusUnauthorized,
	CodeRevoked:               http.StatusForbidden, CodeAgentUnknown: http.StatusNotFound,
	CodeNameTaken: http.StatusConflict, CodeClockSkew: http.StatusUnprocessableEntity,
	CodeCertificateExpired: http.StatusUnauthorized, CodeCertificateUnknown: http.StatusUnauthorized,
	CodeUnreachable: http.StatusServiceUnavailable, CodeWrongCA: 0, CodeNameMismatch: 0,
}

// Errorf returns an Error with a code, a fix and a detail.
func Errorf(code Code, fix, format string, args ...any) *Error {
	if status, own := statusOf[code]; own {
		return problem.New(status, code, fix, format, args...)
	}
	return problem.Errorf(code, fix, format, args...)
}

// ClockSkew refuses a request whose sender's clock is too far from the receiver's. It returns nil
// when the clocks agree well enough.
func ClockSkew(agent, controlPlane time.Time) *Error {
	skew := agent.Sub(controlPlane)
	if skew.Abs() <= MaxClockSkew {
		return nil
	}
	return Errorf(CodeClockSkew, fixClock,
		"the agent's clock is %s %s the control plane's: the agent says %s, the control plane says %s",
		roundSkew(skew.Abs()), direction(skew), stamp(agent), stamp(controlPlane)).WithField("clock")
}

const fixClock = "set the clock of the machine that is wrong, for example with `timedatectl set-ntp true`, and try again"

func direction(skew time.Duration) string {
	if skew < 0 {
		return "behind"
	}
	return "ahead of"
}

func roundSkew(d time.Duration) time.Duration { return d.Round(time.Second) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
