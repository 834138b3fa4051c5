package policy

import "github.com/pipeops/pipeops-vm-agent/runnerapi"

// Records implements backend.Policy.
func (p *Policy) Records(i runnerapi.Intent) bool {
	i.Recorded = true // to find the rule, which refuses a session that is not recorded
	rule, err := p.rule(i)
	return err == nil && rule.Record
}
