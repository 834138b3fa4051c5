package policy

import (
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

// Summary returns lines with what the policy requires beside its rules.
func (d Document) Summary() (lines []string) {
	if d.Audit == required {
		lines = append(lines, "audit: required: each command is recorded before it is carried out, or refused")
	}
	if d.FetchHosts != nil {
		lines = append(lines, egress.PolicyKey+": the agent fetches from "+orNone(d.FetchHosts, "no host"))
	}
	if d.Public != nil && !*d.Public {
		lines = append(lines, "public: false: the agent withdraws all routes")
	}
	for _, r := range d.Rules {
		if r.Record {
			lines = append(lines, fmt.Sprintf("rule %q: sessions are recorded, or refused", r.Name))
		}
	}
	for _, r := range d.Rules {
		if r.Approval != "" {
			lines = append(lines, fmt.Sprintf("rule %q: commands wait for an approval, for %s%s", r.Name, r.Approval, unseen(r)))
		}
	}
	for _, r := range d.Rules {
		if r.Signers != nil {
			lines = append(lines, fmt.Sprintf("rule %q: commits are signed by %s, or refused", r.Name, orNone(r.signerNames(), "no key")))
		}
	}
	for _, r := range d.Rules {
		for _, s := range r.ImageSigners {
			lines = append(lines, fmt.Sprintf("rule %q: %s", r.Name, s.summary()))
		}
	}
	for _, t := range d.Trust {
		lines = append(lines, t.summary()...)
	}
	return lines
}

func unseen(r Rule) string {
	if !r.ApproveUnseen {
		return ""
	}
	return ", also if they cannot be shown whole"
}
