package audit

import "github.com/pipeops/pipeops-vm-agent/runnerapi"

// Link is tested from outside.
var Link = link

// DecodeBatch is fuzzed from outside.
func DecodeBatch(text []byte) ([]runnerapi.AuditRecord, error) {
	b, err := decode(text)
	return b.records(), err
}
