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

// NamespaceCheck is how a call whose path names no namespace is held to rules about namespaces.
type NamespaceCheck string

// The ways in which such calls are.
const (
	// NamespaceCheckLater is asked about for the namespace that it turns out to be about.
	NamespaceCheckLater NamespaceCheck = "found"
	// NamespaceCheckFilter leaves out of its answer what is in a namespace that the policy hides.
	NamespaceCheckFilter NamespaceCheck = "filtered"
	// NamespaceCheckNone is for a call about the whole cluster, which names nothing in a namespace.
	NamespaceCheckNone NamespaceCheck = "cluster"
)

type namespaceCheck struct {
	how NamespaceCheck
	// within lists the calls that show the same for one namespace. A Runner that may not send them
	// there does not see that namespace here.
	within []string
}

// namespaceChecks has each call without a namespace in its path. One that is missing is refused.
var namespaceChecks = map[string]namespaceCheck{
	"get-cluster":      {how: NamespaceCheckNone},
	"list-namespaces":  {how: NamespaceCheckFilter, within: []string{"get-namespace"}},
	"list-apps":        {how: NamespaceCheckFilter, within: []string{"list-namespace-apps", "get-app"}},
	"list-routes":      {how: NamespaceCheckFilter, within: []string{"get-app"}},
	"list-alerts":      {how: NamespaceCheckFilter, within: []string{"list-namespace-alerts"}},
	"get-cost":         {how: NamespaceCheckFilter, within: []string{"get-namespace-cost"}},
	"get-operation":    {how: NamespaceCheckLater},
	"list-audit":       {how: NamespaceCheckFilter},
	"list-nodes":       {how: NamespaceCheckNone},
	"get-node":         {how: NamespaceCheckNone},
	"cordon-node":      {how: NamespaceCheckNone},
	"uncordon-node":    {how: NamespaceCheckNone},
	"drain-node":       {how: NamespaceCheckFilter},
	"get-join-command": {how: NamespaceCheckNone},
	"get-join-token":   {how: NamespaceCheckNone},
	ApplyCall:          {how: NamespaceCheckLater},
	KubernetesCall:     {how: NamespaceCheckFilter},
}

// NamespaceCheckOf returns how a call without a namespace in its path is held to rules about
// namespaces, and the calls that show the same for one namespace; found is false for others.
func NamespaceCheckOf(command string) (how NamespaceCheck, within []string, found bool) {
	c, found := namespaceChecks[command]
	return c.how, c.within, found
}
