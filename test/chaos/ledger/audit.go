package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// behind is how long a record of the audit log may take until it is stored. An agent that is killed
// before that loses the record, as docs/cluster-owner/audit.md describes.
const behind = time.Minute

// Chain returns the gaps between records of the audit log, and the records that do not follow.
func Chain(records []runnerapi.AuditRecord) (problems []string) {
	for i := range records {
		r := &records[i]
		switch {
		case i == 0 && r.Seq != 1:
			problems = append(problems, fmt.Sprintf("the audit log begins with record %d", r.Seq))
		case i == 0:
		case r.Seq != records[i-1].Seq+1:
			problems = append(problems, fmt.Sprintf("record %d of the audit log is followed by %d", records[i-1].Seq, r.Seq))
		case r.Prev != records[i-1].Hash:
			problems = append(problems, fmt.Sprintf("record %d of the audit log does not follow the one before it", r.Seq))
		}
	}
	return problems
}

// deed is what records of the audit log are counted by.
type deed struct {
	kind Kind
	name string
}

// Audited compares the audit log with the commands. For each kind of command on each object, the
// log must contain at least as many operations as were acknowledged, and no more than were sent.
// killed are the times at which agents were killed. What such an agent had not yet stored is lost,
// and counts as excused.
func Audited(commands []Command, records []runnerapi.AuditRecord, killed []time.Time) (problems []string, excused int) {
	operations := map[deed]map[string]bool{}
	lost := 0
	for i := range records {
		r := &records[i]
		lost += int(r.Lost)
		if r.Outcome != runnerapi.AuditDone || r.Command == runnerapi.AuditConnect {
			continue
		}
		d := deed{Kind(r.Command), r.Name}
		if operations[d] == nil {
			operations[d] = map[string]bool{}
		}
		operations[d][r.Operation] = true
	}
	acknowledged, sent, dim := map[deed]int{}, map[deed]int{}, map[deed]int{}
	for i := range commands {
		c := &commands[i]
		d := deed{c.Kind, c.Name}
		sent[d]++
		if c.Outcome == Acknowledged {
			acknowledged[d]++
			if slices.ContainsFunc(killed, func(at time.Time) bool { return at.After(c.Sent) && at.Before(c.Ended.Add(behind)) }) {
				dim[d]++
			}
		}
	}
	for d, ops := range operations {
		if len(ops) > sent[d] {
			problems = append(problems, fmt.Sprintf("the audit log tells of %d operations %s of %s; %d were sent", len(ops), d.kind, d.name, sent[d]))
		}
	}
	for d, want := range acknowledged {
		missing := want - len(operations[d])
		switch {
		case missing <= 0:
		case missing <= dim[d]:
			excused += missing
		case missing <= dim[d]+lost:
			lost -= missing - dim[d]
			excused += missing
		default:
			problems = append(problems, fmt.Sprintf("the audit log tells of %d operations %s of %s; %d were acknowledged, %d of them around a kill of an agent",
				len(operations[d]), d.kind, d.name, want, dim[d]))
		}
	}
	slices.SortFunc(problems, cmp.Compare[string])
	return problems, excused
}
