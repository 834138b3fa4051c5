package announce

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
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
	// maxTimelineTypes bounds the question.
	maxTimelineTypes = 20
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

// timelineBody is the page on the wire: events as CloudEvents, and whether to go on.
type timelineBody struct {
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

// parseTimelineQuery reads the parameters. What is wrong is a [problem.Error] that
// names the parameter.
func parseTimelineQuery(values url.Values) (q TimelineQuery, err error) {
	bad := func(field, fix, format string, args ...any) (TimelineQuery, error) {
		return q, problem.Errorf(problem.Invalid, fix, format, args...).WithField("query." + field)
	}
	q.Limit = DefaultTimelineLimit
	for name, given := range values {
		value := given[0]
		if len(given) > 1 && name != "type" {
			return bad(printable.Clip(name), "give it once", "is given %d times", len(given))
		}
		var n uint64
		switch name {
		case "before", "after", "limit":
			if n, err = strconv.ParseUint(value, 10, 64); err != nil || n == 0 || n > math.MaxInt64 {
				return bad(name, "give a whole number of 1 or more", "%q is no such number", printable.Clip(value))
			}
		}
		switch name {
		case "namespace":
			q.Namespace = value
		case "app":
			q.App = value
		case "before":
			q.Before = n
		case "after":
			q.After = n
		case "limit":
			q.Limit = int(min(n, MaxTimelineLimit))
		case "since":
			if q.Since, err = time.Parse(time.RFC3339, value); err != nil {
				return bad(name, "give a time such as 2026-01-31T09:00:00Z", "%q is not an RFC 3339 time", printable.Clip(value))
			}
		case "order":
			if q.OldestFirst = value == "oldest"; !q.OldestFirst && value != "newest" {
				return bad(name, "give newest or oldest", "%q is neither newest nor oldest", printable.Clip(value))
			}
		case "type":
			for _, t := range given {
				if !typePattern.MatchString(t) {
					return bad(name, "give a type such as app.failed", "%q is not agent.WORD or app.WORD", printable.Clip(t))
				}
				q.Types = append(q.Types, Type(t))
			}
		default:
			return bad(printable.Clip(name), "leave it out", "there is no such parameter")
		}
	}
	switch {
	case len(q.Types) > maxTimelineTypes:
		return bad("type", "ask for all, and choose", "is given more than %d times", maxTimelineTypes)
	case q.App != "" && q.Namespace == "":
		return bad("namespace", "say in which namespace the App is", "is missing")
	}
	return q, nil
}

// TimelineHandler serves agents' timelines to Runners, below TimelinePath. identify returns the
// Runner that asks. page returns a page, or a [problem.Error] if there is no such agent for that
// Runner.
func TimelineHandler(
	page func(ctx context.Context, runner, agentID string, q TimelineQuery) (TimelinePage, error),
	identify func(*http.Request) (runner string, err error),
) http.Handler {
	return jsonHandler(func(w http.ResponseWriter, r *http.Request) ([]byte, error) { return timelineFor(w, r, page, identify) })
}

func timelineFor(
	w http.ResponseWriter, r *http.Request,
	page func(context.Context, string, string, TimelineQuery) (TimelinePage, error),
	identify func(*http.Request) (string, error),
) ([]byte, error) {
	runner, err := identified(w, r, identify)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem.Errorf(problem.BadRequest, "percent-encode the parameters", "the query cannot be read").WithField("query")
	}
	q, err := parseTimelineQuery(values)
	if err != nil {
		return nil, err
	}
	p, err := page(r.Context(), runner, r.PathValue("id"), q)
	if err != nil {
		return nil, err
	}
	body := timelineBody{Events: make([]json.RawMessage, len(p.Events)), More: p.More}
	for i := range p.Events {
		if body.Events[i], err = p.Events[i].Encode(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(body)
}

// decode makes a page of what was sent.
func (b *timelineBody) decode() (TimelinePage, error) {
	page := TimelinePage{Events: make([]Event, len(b.Events)), More: b.More}
	for i, raw := range slices.All(b.Events) {
		var err error
		if page.Events[i], err = Decode(raw); err != nil {
			return TimelinePage{}, err
		}
	}
	return page, nil
}
