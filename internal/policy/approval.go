package policy

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The bounds of a rule's approval.
const minApproval, maxApproval = time.Minute, 24 * time.Hour

func (c *checking) approval(field, text string) {
	if text == "" {
		return
	}
	if d, err := time.ParseDuration(text); err != nil || d < minApproval || d > maxApproval {
		c.add(field, "%.40q is not a duration such as 10m, from %s to %s", text, minApproval, maxApproval)
	}
}

// approval returns how long a call waits for an approval; 0 if it needs none.
func (r Rule) approval(i runnerapi.Intent) time.Duration {
	k := i.Kubernetes
	reads := i.Access == runnerapi.Reads || i.Discovers() || k != nil && k.Reads() && !k.DryRun // a dry run needs the rights of the write
	d, err := time.ParseDuration(r.Approval)
	if reads || err != nil {
		return 0
	}
	return d
}

// ApprovesUnseen implements backend.Policy.
func (p *Policy) ApprovesUnseen(i runnerapi.Intent) bool {
	rule, err := p.rule(i)
	return err == nil && rule.ApproveUnseen
}

// Approval implements backend.Policy.
func (p *Policy) Approval(i runnerapi.Intent) time.Duration {
	rule, err := p.rule(i)
	if err != nil {
		return 0
	}
	return rule.approval(i)
}
