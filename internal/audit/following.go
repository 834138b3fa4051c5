package audit

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Following returns at most limit lines after the head that another party has, for that party to
// store. broken reports that the log does not continue that head; the lines are then the log's last
// ones.
func Following(ctx context.Context, s Store, head runnerapi.AuditHead, limit int) (lines []string, broken bool, err error) {
	if lines, err := next(ctx, s, head, limit); err != nil || len(lines) > 0 {
		return lines, false, err
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("audit: %w", err)
	}
	from := 0 // the batch that contains the head, or follows it
	for i, first := range all {
		if first <= head.Seq {
			from = i
		}
	}
	found := false
	for _, first := range all[from:] {
		b, err := get(ctx, s, first)
		if err != nil {
			return nil, false, err
		}
		for i, r := range b.records() {
			switch {
			case found && len(lines) < limit:
				lines = append(lines, string(b.lines[i]))
			case r.Seq == head.Seq && r.Hash == head.Hash:
				found = true
			case r.Seq == head.Seq+1 && r.Prev == head.Hash:
				found, lines = true, []string{string(b.lines[i])}
			}
		}
		if len(lines) >= limit {
			break
		}
	}
	if found || head.Seq == 0 && len(all) == 0 {
		return lines, false, nil
	}
	lines, err = newest(ctx, s, all, limit)
	return lines, true, err
}

// next returns the lines after a head at a batch's end. That is the usual case, which avoids
// listing the whole log.
func next(ctx context.Context, s Store, head runnerapi.AuditHead, limit int) ([]string, error) {
	var lines []string
	for {
		b, err := get(ctx, s, head.Seq+1)
		if err != nil || len(b.lines) == 0 || b.first.Prev != head.Hash || b.first.Seq != head.Seq+1 {
			return lines, err
		}
		for _, line := range b.lines {
			if len(lines) == limit {
				return lines, nil
			}
			lines = append(lines, string(line))
		}
		head = b.head
	}
}

// newest returns the last lines, oldest first.
func newest(ctx context.Context, s Store, all []int64, limit int) ([]string, error) {
	var lines []string
	for i := len(all) - 1; i >= 0 && len(lines) < limit; i-- {
		b, err := get(ctx, s, all[i])
		if err != nil {
			return nil, err
		}
		before := make([]string, 0, len(b.lines)+len(lines))
		for _, line := range b.lines {
			before = append(before, string(line))
		}
		lines = append(before, lines...)
	}
	return lines[max(0, len(lines)-limit):], nil
}

// get reads a batch. A damaged one is empty, which Verify reports.
func get(ctx context.Context, s Store, first int64) (batch, error) {
	text, err := s.Get(ctx, first)
	if err != nil {
		return batch{}, fmt.Errorf("audit: %w", err)
	}
	b, err := decode(text)
	if err != nil {
		return batch{}, nil //nolint:nilerr // see above
	}
	return b, nil
}
