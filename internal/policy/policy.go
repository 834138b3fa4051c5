// Package policy is the cluster owner's policy about what Runners may do in the cluster: its
// format, its validation, and its decisions about commands. It applies to Runners only: not to
// users of kubectl, and not to what the agent does by itself for an existing App.
//
// Its callers know where the policy is stored and how a change is noticed.
package policy

import (
	"reflect"
	"sync"

	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// The states of a policy, as in runnerapi.PolicyState.
const (
	stateDefault  = "default"
	stateActive   = "active"
	stateReadOnly = "readOnly"
	statePaused   = "paused"
	stateInvalid  = "invalid"
	stateUnknown  = "unknown"
)

// alwaysAnswered is the call by which a Runner finds out why everything else is refused.
const alwaysAnswered = "get-cluster"

// Policy is the current policy. It implements backend.Policy.
type Policy struct {
	source string

	mu      sync.Mutex
	known   bool
	doc     Document
	wrong   *problem.Error // why doc is invalid
	changed chan struct{}

	public     *bool                      // whether the public is let in; nil while it is not known
	publicHost func(runnerapi.Key) string // of an App, below the gateway's domain
	images     VerifyImage
	sigstore   func() (*verify.Verifier, error)
}

var _ backend.Policy = (*Policy)(nil)

// New returns a policy that is not known yet: until Set or Fail is called it refuses all calls.
// source names where its owner sets it, for messages.
func New(source string) *Policy {
	return &Policy{source: source, changed: make(chan struct{})}
}

// Set makes doc the policy from now on. If err is not nil, the policy is invalid for that reason,
// and all calls are refused. Set reports whether that is a change.
func (p *Policy) Set(doc Document, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := wrong(err)
	p.setPublic(doc, w == nil)
	if p.known && reflect.DeepEqual(p.doc, doc) && reflect.DeepEqual(p.wrong, w) {
		return false
	}
	p.known, p.doc, p.wrong = true, doc, w
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// Known reports whether the policy has been read, with any content.
func (p *Policy) Known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

// Changed implements backend.Policy.
func (p *Policy) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// AuditRequired implements backend.Policy.
func (p *Policy) AuditRequired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doc.Audit == required
}

// FetchHosts returns the hosts from which the agent may fetch now: none while the policy is unknown
// or invalid.
func (p *Policy) FetchHosts() egress.Hosts {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || p.wrong != nil {
		return egress.Hosts{Patterns: []string{}, Source: p.source}
	}
	return egress.Hosts{Patterns: p.doc.FetchHosts, Source: p.source}
}

// State implements backend.Policy.
func (p *Policy) State() runnerapi.PolicyState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := runnerapi.PolicyState{Source: p.source, State: stateActive}
	switch {
	case !p.known:
		s.State = stateUnknown
	case p.wrong != nil:
		s.State, s.Message, s.Fix = stateInvalid, located(p.wrong), p.wrong.Fix
	case p.doc.Paused:
		s.State = statePaused
	case p.doc.ReadOnly:
		s.State = stateReadOnly
	case p.doc.Rules == nil:
		s.State = stateDefault
	}
	return s
}

// Decide implements backend.Policy.
func (p *Policy) Decide(i runnerapi.Intent) error {
	rule, err := p.rule(i)
	if err == nil && rule.approval(i) > 0 && !i.Approved {
		return runnerapi.ApprovalRequired(rule.Name)
	}
	return err
}

// Explain names the rule that allows the intent. Unlike Decide it demands no approval.
func (p *Policy) Explain(i runnerapi.Intent) (rule string, err error) {
	r, err := p.rule(i)
	return r.Name, err
}

// rule returns the rule that allows a call; a rule without a name if none was needed.
func (p *Policy) rule(i runnerapi.Intent) (Rule, error) {
	p.mu.Lock()
	known, doc, wrong := p.known, p.doc, p.wrong
	i.PublicHost = p.publicHost
	doc.images = p.images
	p.mu.Unlock()
	switch {
	case (!known || wrong != nil || doc.Paused) && i.Command == alwaysAnswered:
		return Rule{}, nil
	case !known:
		return Rule{}, problem.Errorf(problem.Unavailable, "send it again; if it stays so, see the agent's log", "the customer's policy is not known yet").
			WithRetryAfter(retryAfter)
	case wrong != nil && wrong.Code == problem.Forbidden:
		// The policy may be valid: an API server that has just started forbids everything for a
		// moment. That is not a reason for a Runner to give up.
		return Rule{}, problem.Errorf(problem.Unavailable, "send it again; if it stays so: "+wrong.Fix,
			"the customer's policy cannot be read, so nothing is allowed: %s", located(wrong)).WithRetryAfter(retryAfter)
	case wrong != nil:
		return Rule{}, runnerapi.PolicyDenied("the owner of the cluster has to correct "+p.source+": "+wrong.Fix,
			"the customer's policy cannot be understood, so nothing is allowed: %s", located(wrong))
	case doc.Paused:
		return Rule{}, runnerapi.PolicyDenied("wait until the owner of the cluster sets paused to false in "+p.source,
			"the customer's policy has paused all commands (paused)")
	case doc.ReadOnly && i.Access != runnerapi.Reads:
		return Rule{}, runnerapi.PolicyDenied("only the owner of the cluster can allow it: readOnly in "+p.source,
			"the customer's policy allows reading only (readOnly), and %s is a command", i.Command)
	}
	rule, err := doc.explain(i, p.source)
	if err == nil {
		err = doc.still(i, p.source)
	}
	if err == nil && i.App != nil && len(i.App.Patches) > 0 {
		rule, err = doc.patches(i, p.source)
	}
	if err != nil {
		return Rule{}, err
	}
	return rule, nil
}

// wrong turns any error into a problem.
func wrong(err error) *problem.Error {
	if err == nil {
		return nil
	}
	if p, ok := err.(*problem.Error); ok { //nolint:errorlint // Parse's own, never wrapped
		return p
	}
	return problem.Errorf(problem.Invalid, "see the agent's log", "%v", err)
}

// located returns a problem without its fix.
func located(e *problem.Error) string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}
