package announce

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// TimelinePath is where the control plane serves an agent's timeline, as a pattern of
// http.ServeMux.
const TimelinePath = SnapshotPath + "/{id}/timeline"

const (
	// DefaultTimelineLimit is how many events a page has if nothing else is asked for.
	DefaultTimelineLimit = 100
	// MaxTimelineLimit is how many it has at most.
	MaxTimelineLimit = 500
	// MaxTimelineBytes is how much of encoded events a page has, one event excepted.
	MaxTimelineBytes = 4 << 20
	// MaxTimelineTypes bounds the question.
	MaxTimelineTypes = 20
)

// TimelineQuery selects from an agent's timeline. Zero values select everything.
type TimelineQuery struct {
	// Namespace, or App in Namespace, is what the events are about.
	Namespace, App string
	Types          []Type
	// Since is a bound on the events' own time.
	Since time.Time
	// Before and After are sequences: older than the one, newer than the other.
	Before, After uint64
	// OldestFirst is the other order than newest first.
	OldestFirst bool
	// Limit is how many; DefaultTimelineLimit when zero.
	Limit int
}

// TimelinePage is a part of a timeline.
type TimelinePage struct {
	Events []Event
	// More reports that there are older events, or with OldestFirst newer ones.
	More bool
}

// Next returns the question for the page after this one. Ask it only if there is More.
func (p *TimelinePage) Next(q TimelineQuery) TimelineQuery {
	if n := len(p.Events); n > 0 && q.OldestFirst {
		q.After = p.Events[n-1].Sequence
	} else if n > 0 {
		q.Before = p.Events[n-1].Sequence
	}
	return q
}

// Newest reads pages, the newest first, until it has as many events as Limit says or there are no
// more. It returns them oldest first.
func (q TimelineQuery) Newest(read func(TimelineQuery) (TimelinePage, error)) (events []Event, err error) {
	for more := true; more && len(events) < q.Limit; {
		next := q
		next.Limit -= len(events)
		page, err := read(next)
		if err != nil {
			return nil, err
		}
		events, q, more = append(events, page.Events...), page.Next(q), page.More
	}
	slices.Reverse(events)
	return events, nil
}

// TimelineBody is the page on the wire: events as CloudEvents, and whether to go on.
type TimelineBody struct {
	Events []json.RawMessage `json:"events"`
	More   bool              `json:"more"`
}

// values returns the query's parameters.
func (q *TimelineQuery) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	number := func(name string, n uint64) {
		if n > 0 {
			v.Set(name, strconv.FormatUint(n, 10))
		}
	}
	set("namespace", q.Namespace)
	set("app", q.App)
	for _, t := range q.Types {
		v.Add("type", string(t))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	number("before", q.Before)
	number("after", q.After)
	number("limit", uint64(max(q.Limit, 0)))
	if q.OldestFirst {
		v.Set("order", "oldest")
	}
	return v
}

// decode makes a page of what was sent, without events of unknown types.
func (b *TimelineBody) decode() (TimelinePage, error) {
	page := TimelinePage{Events: make([]Event, 0, len(b.Events)), More: b.More}
	for _, raw := range b.Events {
		e, err := Decode(raw)
		if _, ok := errors.AsType[*UnknownTypeError](err); ok {
			continue
		}
		if err != nil {
			return TimelinePage{}, err
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}
