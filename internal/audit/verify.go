package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Report is the result of verifying a log.
type Report struct {
	First    int64               `json:"first"` // 0 when there is none
	Records  int                 `json:"records"`
	Head     runnerapi.AuditHead `json:"head"`
	Problems []string            `json:"problems"`
}

// Verify finds records that were removed, changed or moved. To detect missing records at the log's
// end, or a log that was recreated as a whole, it needs a head that was noted before, as the
// control plane does. The zero head stands for none.
func Verify(ctx context.Context, s Store, noted runnerapi.AuditHead) (Report, error) {
	r := Report{Problems: []string{}}
	all, err := s.List(ctx)
	if err != nil {
		return r, fmt.Errorf("audit: %w", err)
	}
	seen := noted.Seq == 0
	for i, first := range all {
		text, err := s.Get(ctx, first)
		if err != nil {
			return r, fmt.Errorf("audit: %w", err)
		}
		b, err := decode(text)
		switch {
		case text == nil && i == 0:
			continue // it grew too old meanwhile
		case err != nil:
			r.add("the batch at record %d: %v", first, err)
			r.Head = runnerapi.AuditHead{}
			continue
		case b.first.Seq != first:
			r.add("the batch at record %d begins with record %d", first, b.first.Seq)
		}
		r.follow(b, i == 0, len(all) < s.Most())
		for _, record := range b.records() {
			seen = seen || record.Seq == noted.Seq && record.Hash == noted.Hash
		}
		r.Records += len(b.lines)
		r.Head = b.head
	}
	switch {
	case seen:
	case r.Head.Seq < noted.Seq:
		r.add("the log ends with record %d, and had a record %d: records at its end were removed", r.Head.Seq, noted.Seq)
	case r.First <= noted.Seq:
		r.add("record %d is not the one that was noted: the log was recreated", noted.Seq)
	}
	return r, nil
}

func (r *Report) add(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// follow compares a batch's beginning with the end of the one before.
func (r *Report) follow(b batch, isFirst, few bool) {
	if isFirst {
		r.First = b.first.Seq
		switch {
		case b.first.Seq > 1 && few:
			r.add("records before %d were removed: as few as there are, none is too old", b.first.Seq)
		case b.first.Seq == 1 && b.first.Prev != "":
			r.add("record 1 follows one that is not there")
		}
		return
	}
	switch {
	case r.Head.Seq == 0: // the one before is invalid, which was reported
	case b.first.Seq != r.Head.Seq+1:
		r.add("records %d to %d were removed", r.Head.Seq+1, b.first.Seq-1)
	case b.first.Prev != r.Head.Hash:
		r.add("record %d was changed, or what follows it", r.Head.Seq)
	}
}

// ParseHead parses the flag --head, the end of a log that was noted before. Without the flag, it
// returns the zero head.
func ParseHead(text string) (runnerapi.AuditHead, error) {
	if text == "" {
		return runnerapi.AuditHead{}, nil
	}
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil || seq < 1 || len(hash) != 2*sha256.Size {
		return runnerapi.AuditHead{}, fmt.Errorf("--head: %.100q is not the end of a log (fix: write it as NUMBER:HASH, the hash with %d digits)", text, 2*sha256.Size)
	}
	return runnerapi.AuditHead{Seq: seq, Hash: hash}, nil
}
