package audit

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// MaxScan bounds how many records one search reads.
	MaxScan = 5000
	// maxCalls is how many calls a search returns at most.
	maxCalls = 1000
	// DefaultCalls is how many calls a search returns if it names no limit.
	DefaultCalls = 100
	// chunk is how many records are read at a time, where more than a few calls are wanted.
	chunk = 250
	// maxAhead is in how many later records the end of a call is looked for.
	maxAhead = 1000
	// skew is how far the clocks of replicas may differ, and how long a call without a record
	// "begun" may take.
	skew = 15 * time.Minute
)

// Outcomes are those that a call can have.
var Outcomes = []runnerapi.AuditOutcome{runnerapi.AuditBegun, runnerapi.AuditDone, runnerapi.AuditRefused, runnerapi.AuditFailed}

// Entry is a record at its place in a log.
type Entry struct {
	runnerapi.AuditRecord
	Place  int64 // increases along the log
	Broken bool  // it does not follow the one before
}

// Source reads a log in both directions.
type Source interface {
	// Back returns at most limit entries before a place, newest first.
	Back(ctx context.Context, place int64, limit int) ([]Entry, error)
	// Ahead returns at most limit entries from a place on, oldest first.
	Ahead(ctx context.Context, place int64, limit int) ([]Entry, error)
}

// Find returns the newest calls that a filter selects, among the visible ones. It reads MaxScan
// records at most. A nil visible makes all visible.
func Find(ctx context.Context, in Source, f runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	s, err := newSearch(ctx, in, f, visible)
	if err != nil {
		return runnerapi.AuditList{}, err
	}
	for s.found.Scanned < MaxScan {
		entries, err := in.Back(ctx, s.at, min(chunk, 2*s.limit))
		if err != nil || len(entries) == 0 {
			return s.found, err
		}
		for _, e := range entries {
			if more, err := s.take(ctx, e); err != nil || !more {
				return s.found, err
			}
		}
	}
	s.found.Older = s.at
	return s.found, nil
}

// search is a search on its way from newer to older records.
type search struct {
	selection
	visible func(runnerapi.AuditRecord) bool
	limit   int

	in    Source
	end   int64 // nothing from here on is searched, on any page
	first int64 // where this page begins
	at    int64 // the last place that was read
	// ended are the calls whose end was read, by key; ahead are those of later pages.
	ended map[string]*runnerapi.AuditCall
	ahead map[string]Entry
	found runnerapi.AuditList
}

func newSearch(ctx context.Context, in Source, f runnerapi.AuditFilter, visible func(runnerapi.AuditRecord) bool) (*search, error) {
	selected, err := selects(f, time.Now())
	if err != nil {
		return nil, err
	}
	s := &search{selection: selected, visible: visible, limit: cmp.Or(f.Limit, DefaultCalls), in: in, end: math.MaxInt64, ended: map[string]*runnerapi.AuditCall{}}
	s.found.Items = make([]runnerapi.AuditCall, 0, s.limit) // calls are pointed at
	if !s.until.IsZero() {
		s.end, err = seek(ctx, in, s.until.Add(skew))
	}
	s.first = min(s.end, cmp.Or(f.Before, math.MaxInt64))
	s.at = s.first
	return s, err
}

// seek returns the place of the first record that was written after a time.
func seek(ctx context.Context, in Source, t time.Time) (int64, error) {
	newest, err := in.Back(ctx, math.MaxInt64, 1)
	if err != nil || len(newest) == 0 {
		return math.MaxInt64, err
	}
	low, high := int64(0), newest[0].Place+1
	for low < high {
		middle := low + (high-low)/2
		before, err := in.Back(ctx, middle+1, 1)
		if err != nil {
			return 0, err
		}
		if len(before) == 0 || !before[0].written().After(t) {
			low = middle + 1
			continue
		}
		high = middle
	}
	return low, nil
}

// take looks at the next older entry, and reports whether the search goes on.
func (s *search) take(ctx context.Context, e Entry) (more bool, err error) {
	if !s.since.IsZero() && e.written().Before(s.since.Add(-skew)) {
		return false, nil
	}
	if len(s.found.Items) == s.limit { // there is an older one
		s.found.Older = s.at
		return false, nil
	}
	s.at = e.Place
	s.found.Scanned++
	call, err := s.callOf(ctx, e)
	if err == nil && call != nil && (s.visible == nil || s.visible(call.AuditRecord)) && s.selects(call) {
		s.found.Items = append(s.found.Items, *call)
		if e.Outcome != runnerapi.AuditBegun {
			s.ended[e.key()] = &s.found.Items[len(s.found.Items)-1]
		}
	}
	return true, err
}

// callOf returns the call whose record an entry is; nil if the call has its row already.
func (s *search) callOf(ctx context.Context, e Entry) (*runnerapi.AuditCall, error) {
	call := &runnerapi.AuditCall{AuditRecord: e.AuditRecord, Broken: e.Broken}
	if e.Outcome != runnerapi.AuditBegun {
		s.ended[e.key()] = call
		return call, nil
	}
	if ended := s.ended[e.key()]; ended != nil && e.RequestID != "" {
		ended.Began, ended.Broken = e.Seq, ended.Broken || e.Broken
		delete(s.ended, e.key())
		return nil, nil
	}
	end, found, err := s.later(ctx, e)
	switch {
	case err != nil || !found:
		return call, err
	case end.Place < s.end:
		return nil, nil // on a page with newer calls
	}
	return &runnerapi.AuditCall{AuditRecord: end.AuditRecord, Began: e.Seq, Broken: e.Broken || end.Broken}, nil
}

// later returns the end of a call after the page, if it is near.
func (s *search) later(ctx context.Context, began Entry) (Entry, bool, error) {
	if s.first == math.MaxInt64 || began.RequestID == "" {
		return Entry{}, false, nil
	}
	if s.ahead == nil {
		entries, err := s.in.Ahead(ctx, s.first, maxAhead)
		if err != nil {
			return Entry{}, false, err
		}
		s.ahead = map[string]Entry{}
		for _, e := range entries {
			if _, known := s.ahead[e.key()]; !known && e.Outcome != runnerapi.AuditBegun {
				s.ahead[e.key()] = e
			}
		}
	}
	end, found := s.ahead[began.key()]
	return end, found, nil
}

// key is the same for both records of a call.
func (e Entry) key() string {
	return strings.Join([]string{e.RequestID, e.Runner, e.Command, e.Namespace, e.Name}, "\n")
}

// written returns when the record was written: at the end of the call, if it has ended.
func (e Entry) written() time.Time { return e.Time.Add(time.Duration(e.Millis) * time.Millisecond) }
