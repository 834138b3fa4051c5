package policy

// Summary returns lines with what the policy requires beside its rules.
func (d Document) Summary() (lines []string) {
	if d.Audit == auditRequired {
		lines = append(lines, "audit: required: each command is recorded before it is carried out, or refused")
	}
	for _, t := range d.Trust {
		lines = append(lines, t.summary()...)
	}
	return lines
}
