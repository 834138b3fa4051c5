package runnerapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// CodeApprovalRequired is the code of a command that the cluster's owner has to approve first.
const CodeApprovalRequired = Code("approval_required") // 403

// Approval is a command that the cluster's owner can approve.
type Approval struct {
	ID        string    `json:"id"`
	Runner    string    `json:"runner"`
	Command   string    `json:"command"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	RequestID string    `json:"requestId"` // of the first call
	Asked     time.Time `json:"asked"`
	// Until is when the request, and an approval of it, expires.
	Until time.Time `json:"until"`
	// Arguments are what was sent, without what may be secret.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Run is the command line of exec, with its arguments.
	Run []string `json:"run,omitempty"`
	// Approved is when the owner approved it; nil as long as it waits.
	Approved *time.Time `json:"approved,omitempty"`
}

// ApprovalRequired returns the refusal of a command that has no approval and cannot wait for one.
func ApprovalRequired(rule string) *Error {
	return problem.New(http.StatusForbidden, CodeApprovalRequired,
		"send the command by itself: only a command of a Runner can be approved",
		"rule %q of the customer's policy requires an approval by the owner of the cluster", rule)
}
