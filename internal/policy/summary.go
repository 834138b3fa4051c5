package policy

import "github.com/pipeops/pipeops-vm-agent/internal/egress"

// Summary returns lines with what the policy requires beside its rules.
func (d Document) Summary() (lines []string) {
	if d.Audit == auditRequired {
		lines = append(lines, "audit: required: each command is recorded before it is carried out, or refused")
	}
	if d.FetchHosts != nil {
		lines = append(lines, egress.PolicyKey+": the agent fetches from "+orNone(d.FetchHosts, "no host"))
	}
	for _, t := range d.Trust {
		lines = append(lines, t.summary()...)
	}
	return lines
}
