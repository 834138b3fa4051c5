package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// MaxScan bounds how many records one search reads.
	MaxScan = 5000
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

// Filter selects calls. A zero field selects all. The tags are those of parameters in an address.
type Filter struct {
	By      string                 `query:"by" maxLength:"256" doc:"Part of the name of who sent the call: a Runner or an operator."`
	App     string                 `query:"app" maxLength:"320" doc:"Part of NAMESPACE/NAME of the App, or of what else the call is about."`
	Command string                 `query:"command" maxLength:"256" doc:"Part of the call's operationId."`
	Outcome runnerapi.AuditOutcome `query:"outcome" enum:"begun,done,refused,failed"`
	From    time.Time              `query:"from" doc:"Only calls that came at this time or later."`
	To      time.Time              `query:"to" doc:"Only calls that came before this time."`
	Before  int64                  `query:"before" minimum:"0" doc:"Only older calls: the number that an earlier answer has as older."`
	Limit   int                    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many calls to return."`
}

// Call is what the log has of one call: the record of its end, or that of its beginning while it
// has no end.
type Call struct {
	runnerapi.AuditRecord
	Began  int64 `json:"began,omitempty" doc:"Number of the record with which the call began, if it has two."`
	Broken bool  `json:"broken,omitempty" doc:"The record does not follow the one before."`
}

// About returns what the call is about, such as production/web. An operator's call about an App of
// an agent has the App among its arguments.
func (c Call) About() string {
	switch {
	case c.Namespace != "" && c.Name != "":
		return c.Namespace + "/" + c.Name
	case c.Namespace != "":
		return c.Namespace
	}
	var sent struct{ Namespace, App string }
	if json.Unmarshal(c.Arguments, &sent) != nil || sent.App == "" {
		return c.Name
	}
	return c.Name + " " + sent.Namespace + "/" + sent.App
}

// Found is a part of the log, newest call first.
type Found struct {
	Calls   []Call
	Older   int64 // where older calls begin, for Filter.Before; 0 for none
	Scanned int   // records
	Head    runnerapi.AuditHead
}

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

// Find returns the newest calls that a filter selects. It reads MaxScan records at most.
func Find(ctx context.Context, in Source, f Filter) (Found, error) {
	s, err := newSearch(ctx, in, f)
	if err != nil {
		return Found{}, err
	}
	for s.found.Scanned < MaxScan {
		entries, err := in.Back(ctx, s.at, min(chunk, 2*s.Limit))
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
	Filter
	in    Source
	end   int64 // nothing from here on is searched, on any page
	first int64 // where this page begins
	at    int64 // the last place that was read
	// ended are the calls whose end was read, by key; ahead are those of later pages.
	ended map[string]*Call
	ahead map[string]Entry
	found Found
}

func newSearch(ctx context.Context, in Source, f Filter) (*search, error) {
	s := &search{Filter: f, in: in, end: math.MaxInt64, ended: map[string]*Call{}}
	s.Limit = cmp.Or(f.Limit, DefaultCalls)
	s.found.Calls = make([]Call, 0, s.Limit) // calls are pointed at
	var err error
	if !f.To.IsZero() {
		s.end, err = seek(ctx, in, f.To.Add(skew))
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
	if !s.From.IsZero() && e.written().Before(s.From.Add(-skew)) {
		return false, nil
	}
	if len(s.found.Calls) == s.Limit { // there is an older one
		s.found.Older = s.at
		return false, nil
	}
	s.at = e.Place
	s.found.Scanned++
	call, err := s.callOf(ctx, e)
	if err == nil && call != nil && s.selects(call) {
		s.found.Calls = append(s.found.Calls, *call)
		if e.Outcome != runnerapi.AuditBegun {
			s.ended[e.key()] = &s.found.Calls[len(s.found.Calls)-1]
		}
	}
	return true, err
}

// callOf returns the call whose record an entry is; nil if the call has its row already.
func (s *search) callOf(ctx context.Context, e Entry) (*Call, error) {
	call := &Call{AuditRecord: e.AuditRecord, Broken: e.Broken}
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
	return &Call{AuditRecord: end.AuditRecord, Began: e.Seq, Broken: e.Broken || end.Broken}, nil
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

// selects reports whether the filter selects a call.
func (s *search) selects(c *Call) bool {
	return has(c.By(), s.By) && has(c.About(), s.App) && has(c.Command, s.Command) &&
		(s.Outcome == "" || s.Outcome == c.Outcome) &&
		(s.From.IsZero() || !c.Time.Before(s.From)) && (s.To.IsZero() || c.Time.Before(s.To))
}

func has(text, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(text), strings.ToLower(strings.TrimSpace(part)))
}

// key is the same for both records of a call.
func (e Entry) key() string {
	return strings.Join([]string{e.RequestID, e.Runner, e.Command, e.Namespace, e.Name}, "\n")
}

// written returns when the record was written: at the end of the call, if it has ended.
func (e Entry) written() time.Time { return e.Time.Add(time.Duration(e.Millis) * time.Millisecond) }
