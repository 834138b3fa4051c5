package backend

import (
	"context"
	"io"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Approvals keeps the commands that wait for an approval by the cluster's owner.
type Approvals interface {
	// Use reports whether the owner has approved this very command. An approval is good for one
	// Use. Without one, Use returns the request that the owner can approve.
	Use(context.Context, ApprovalRequest) (runnerapi.Approval, bool, error)
}

// ApprovalRequest is a command that needs an approval.
type ApprovalRequest struct {
	runnerapi.Approval
	// Bytes are the whole command in its one form. They are compared and not stored.
	Bytes []byte
}

// Auditor keeps the audit log.
type Auditor interface {
	// Record adds a record without waiting until it is stored.
	Record(runnerapi.AuditRecord)
	// Keep adds a record and waits until it is stored durably, or until ctx ends.
	Keep(context.Context, runnerapi.AuditRecord) error
	// List returns at most limit stored records that follow the number after, oldest first.
	List(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error)
	// Find returns the newest calls that a filter selects, among the visible ones.
	Find(ctx context.Context, f runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error)
}

// Policy is the cluster owner's policy about what Runners may do. It may change at any time, and
// applies from then on.
type Policy interface {
	// Decide returns nil, or an *Error with the reason for a refusal.
	Decide(runnerapi.Intent) error
	// Changed is closed when the policy changes.
	Changed() <-chan struct{}
	// KubernetesGrant returns how the policy lets a request to the Kubernetes API be made, or an
	// *Error with the reason for a refusal.
	KubernetesGrant(runnerapi.Intent) (runnerapi.KubernetesGrant, error)
	// AuditRequired reports whether each command has to be recorded before it is carried out.
	AuditRequired() bool
	// Records reports whether the rule that allows a session has it recorded.
	Records(runnerapi.Intent) bool
	// Approval returns how long a command waits for an approval by the cluster's owner; 0 if it
	// needs none.
	Approval(runnerapi.Intent) time.Duration
	// ApprovesUnseen reports whether the owner approves commands that cannot be shown whole.
	ApprovesUnseen(runnerapi.Intent) bool
	// Visible reports whether a call over all namespaces may show a Runner what is in one.
	Visible(runner, command, namespace string) bool
}

// OrDeny returns the policy, or one that denies everything if it is nil.
func OrDeny(p Policy) Policy {
	if p == nil {
		return DenyAll{}
	}
	return p
}

// DenyAll is the policy of a server that was given none: it refuses every call.
type DenyAll struct{}

var _ Policy = DenyAll{}

// Decide implements Policy.
func (DenyAll) Decide(i runnerapi.Intent) error {
	return runnerapi.PolicyDenied("report this", "this agent has no policy, so it does not allow %s", i.Command)
}

// Changed implements Policy.
func (DenyAll) Changed() <-chan struct{} { return nil }

// KubernetesGrant implements Policy.
func (d DenyAll) KubernetesGrant(i runnerapi.Intent) (runnerapi.KubernetesGrant, error) {
	return runnerapi.KubernetesGrant{}, d.Decide(i)
}

// AuditRequired implements Policy.
func (DenyAll) AuditRequired() bool { return true }

// Records implements Policy.
func (DenyAll) Records(runnerapi.Intent) bool { return true }

// Approval implements Policy.
func (DenyAll) Approval(runnerapi.Intent) time.Duration { return 0 }

// ApprovesUnseen implements Policy.
func (DenyAll) ApprovesUnseen(runnerapi.Intent) bool { return false }

// Visible implements Policy.
func (DenyAll) Visible(_, _, _ string) bool { return false }

// Recorder records exec sessions for the cluster's owner.
type Recorder interface {
	// Begin stores the beginning of a recording.
	Begin(context.Context, Session) (Recording, error)
}

// Session describes a session that is recorded.
type Session struct {
	Runner, RequestID, Namespace, Name string
	TTY                                bool
}

// Recording is the recording of one session. It contains no input: that has passwords which a
// terminal does not show.
type Recording interface {
	ID() string
	// Output returns a writer that records a stream of the session. It fails when the session
	// cannot be recorded any further.
	Output() io.Writer
	// Resize records a size of the terminal.
	Resize(runnerapi.TerminalSize)
	// Run stores what is recorded, until ctx ends and all is stored. It returns earlier, with an
	// error, when the session cannot be recorded any further.
	Run(ctx context.Context) error
	// Close releases the recording, whether or not Run was called.
	Close()
}
