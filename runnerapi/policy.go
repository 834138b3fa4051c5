package runnerapi

import (
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// CodePolicyDenied is the code of calls that the cluster owner's policy does not allow.
const CodePolicyDenied = Code("policy_denied") // 403

// Access is how the cluster owner's policy classifies a call.
type Access string

// The kinds of access. A call that has none is refused.
const (
	Open   Access = "open"  // no Runner is asked for: the health calls and the document
	Reads  Access = "read"  // changes nothing
	Writes Access = "write" // a command
	// Named is a command that reaches past what the agent watches over. A policy
	// has to name it: no wildcard allows it.
	Named Access = "named"
)

// AdoptNamespace is the command of taking over a namespace that is not the
// agent's, which is a part of put-namespace.
const AdoptNamespace = "adopt-namespace"

// AdoptApp is the command of taking over objects that were made otherwise as an App's, which
// is a part of put-app.
const AdoptApp = "adopt-app"

// Intent describes what a Runner is about to do.
type Intent struct {
	Command   string // ID of the call
	Access    Access
	Runner    string
	Namespace string // empty for what is not in one namespace

	// What the command brings, as far as a policy can bound it.
	App   *AppSpec // the App as it would be
	Scale *Scale
	Build *BuildSpec
	// Kubernetes is the request to the Kubernetes API.
	Kubernetes *KubernetesRequest
	// Recorded reports whether the agent records the session. A session that began without a
	// record ends when a rule demands one.
	Recorded bool
	// Approved reports whether the cluster's owner has approved the command.
	Approved bool
	// Objects are those that the command would make, or delete, in form of manifests: of a
	// chart, its hooks included, of a set, of a source.
	Objects []ObjectIntent
}

// Discovers reports whether a Runner only asks the Kubernetes API what exists, or about itself.
// Every rule that allows a request also allows that.
func (i Intent) Discovers() bool { return i.Kubernetes != nil && i.Kubernetes.Discovery }

// PolicyState describes what policy holds in a cluster.
type PolicyState struct {
	State   string `json:"state" enum:"default,active,readOnly,paused,invalid,unknown" doc:"default: the cluster's owner has set none. invalid: it cannot be understood, and until it can all commands are refused. unknown: it has not been read yet."`
	Source  string `json:"source" doc:"Where the owner of the cluster sets it."`
	Message string `json:"message,omitempty" doc:"What is wrong with it."`
	Fix     string `json:"fix,omitempty"`
}

// PolicyDenied returns a refusal. Its detail names the rule.
func PolicyDenied(fix, format string, args ...any) *Error {
	return problem.New(http.StatusForbidden, CodePolicyDenied, fix, format, args...)
}
