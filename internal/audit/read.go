package audit

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Head returns the end of the log in a store. If the last batch is damaged, the log continues after
// it, and Verify reports that.
func Head(ctx context.Context, s Store) (runnerapi.AuditHead, error) {
	all, err := s.List(ctx)
	if err != nil || len(all) == 0 {
		return runnerapi.AuditHead{}, err
	}
	last := all[len(all)-1]
	text, err := s.Get(ctx, last)
	if err != nil {
		return runnerapi.AuditHead{}, err
	}
	b, err := decode(text)
	if err != nil {
		return runnerapi.AuditHead{Seq: last + maxBatch, Hash: runnerapi.AuditHash(text)}, nil //nolint:nilerr // Verify reports the damage
	}
	return b.head, nil
}

// List implements backend.Auditor.
func (l *Log) List(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	return Read(ctx, l.store, after, limit)
}

// Read returns at most limit records after a number, oldest first. It leaves out damaged ones,
// which Verify reports.
func Read(ctx context.Context, s Store, after int64, limit int) (runnerapi.AuditList, error) {
	var list runnerapi.AuditList
	all, err := s.List(ctx)
	if err != nil {
		return list, fmt.Errorf("audit: %w", err)
	}
	if list.Head, err = Head(ctx, s); err != nil {
		return list, fmt.Errorf("audit: %w", err)
	}
	for i, first := range all {
		if i+1 < len(all) && all[i+1] <= after+1 {
			continue // all of it is known
		}
		b, err := get(ctx, s, first)
		if err != nil {
			return list, err
		}
		for _, r := range b.records() {
			if r.Seq > after && len(list.Items) < limit {
				list.Items = append(list.Items, runnerapi.AuditCall{AuditRecord: r})
			}
		}
		if len(list.Items) >= limit {
			break
		}
	}
	return list, nil
}
