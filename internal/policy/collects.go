package policy

import (
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Names reports whether a rule names a command for some Runner in a namespace, so that what the
// command shows is to be collected. Which Runner may read it is for Decide. It is for commands that
// rules have to name.
func (p *Policy) Names(command, namespace string) bool {
	p.mu.Lock()
	known, doc, wrong := p.known, p.doc, p.wrong
	p.mu.Unlock()
	if !known || wrong != nil || doc.Paused {
		return false
	}
	i := runnerapi.Intent{Command: command, Access: runnerapi.Named, Namespace: namespace}
	return slices.ContainsFunc(doc.Rules, func(r Rule) bool { return !r.Deny && r.names(i) && matches(r.Namespaces, namespace) })
}
