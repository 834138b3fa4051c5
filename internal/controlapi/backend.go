package controlapi

import "context"

// Backend carries out the calls. It returns an *Error if the agent or its operator can act on it.
// Any other error becomes a 500 without detail.
type Backend interface {
	// Register checks the enrolment token and issues an identity.
	Register(ctx context.Context, token string, req RegisterRequest) (Identity, error)
	// CheckToken reports whether Register would take the enrolment token, and what it is still good
	// for. It changes nothing.
	CheckToken(ctx context.Context, token string, check TokenCheck) (TokenState, error)
	// Renew issues a new certificate. agentID is the one proven by TLS, or empty
	// when the caller has to prove itself by req.OldCertificate and req.Proof.
	Renew(ctx context.Context, agentID string, req RenewRequest) (Identity, error)
	// Heartbeat notes that the agent is alive.
	Heartbeat(ctx context.Context, agentID string, beat Heartbeat) (HeartbeatAnswer, error)
	// Audit takes records of the agent's audit log, as far as they follow those
	// that it has.
	Audit(ctx context.Context, agentID string, req AuditRequest) (AuditAnswer, error)
	// Events accepts events; once it has returned nil they cannot be lost.
	Events(ctx context.Context, agentID string, r EventsRequest) error
	// Routes returns which routes of the agent are known.
	Routes(ctx context.Context, agentID string) (RoutesState, error)
	// PutRoutes replaces the agent's routes, none of which is in the request twice.
	PutRoutes(ctx context.Context, agentID string, req RoutesRequest) (RoutesState, error)
	// Visitor takes the code of a visitor of one of the agent's hosts, and returns who that is.
	Visitor(ctx context.Context, agentID string, req VisitorRequest) (Visitor, error)
}
