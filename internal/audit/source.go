package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// stored is a store as a Source. The place of a record is its number.
type stored struct {
	Store
	batches []int64
}

// Back implements Source.
func (s stored) Back(ctx context.Context, place int64, limit int) ([]Entry, error) {
	var list []Entry
	for i := s.after(place) - 1; i >= 0 && len(list) < limit; i-- {
		b, err := get(ctx, s.Store, s.batches[i])
		if err != nil {
			return nil, err
		}
		records := b.records()
		for n := len(records) - 1; n >= 0 && len(list) < limit; n-- {
			if records[n].Seq < place {
				list = append(list, Entry{AuditRecord: records[n], Place: records[n].Seq})
			}
		}
	}
	return list, nil
}

// Ahead implements Source.
func (s stored) Ahead(ctx context.Context, place int64, limit int) ([]Entry, error) {
	var list []Entry
	for i := max(0, s.after(place)-1); i < len(s.batches) && len(list) < limit; i++ {
		b, err := get(ctx, s.Store, s.batches[i])
		if err != nil {
			return nil, err
		}
		for _, r := range b.records() {
			if r.Seq >= place && len(list) < limit {
				list = append(list, Entry{AuditRecord: r, Place: r.Seq})
			}
		}
	}
	return list, nil
}

// after returns the index of the first batch that begins at a place or after it.
func (s stored) after(place int64) int {
	i, _ := slices.BinarySearch(s.batches, place)
	return i
}

// Find implements backend.Auditor.
func (l *Log) Find(ctx context.Context, f runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	return Search(ctx, l.store, f, visible)
}

// Search finds calls in a store as Find does.
func Search(ctx context.Context, s Store, f runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	head, err := Head(ctx, s)
	if err != nil {
		return runnerapi.AuditList{}, fmt.Errorf("audit: %w", err)
	}
	batches, err := s.List(ctx)
	if err != nil {
		return runnerapi.AuditList{}, fmt.Errorf("audit: %w", err)
	}
	found, err := Find(ctx, stored{s, batches}, f, visible)
	found.Head = head
	return found, err
}
