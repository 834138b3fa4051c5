package server

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TimelineHandler serves agents' timelines to Runners, below TimelinePath. identify returns the
// Runner that asks. page returns a page, or a [problem.Error] if there is no such agent for that
// Runner.
func TimelineHandler(
	page func(ctx context.Context, runner, agentID string, q announce.TimelineQuery) (announce.TimelinePage, error),
	identify func(*http.Request) (runner string, err error),
) http.Handler {
	return jsonHandler(func(w http.ResponseWriter, r *http.Request) ([]byte, error) { return timelineFor(w, r, page, identify) })
}

func timelineFor(
	w http.ResponseWriter, r *http.Request,
	page func(context.Context, string, string, announce.TimelineQuery) (announce.TimelinePage, error),
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
	body := announce.TimelineBody{Events: make([]json.RawMessage, len(p.Events)), More: p.More}
	for i := range p.Events {
		if body.Events[i], err = p.Events[i].Encode(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(body)
}

// parseTimelineQuery reads the parameters. What is wrong is a [problem.Error] that
// names the parameter.
func parseTimelineQuery(values url.Values) (q announce.TimelineQuery, err error) {
	bad := func(field, fix, format string, args ...any) (announce.TimelineQuery, error) {
		return q, problem.Errorf(problem.Invalid, fix, format, args...).WithField("query." + field)
	}
	q.Limit = announce.DefaultTimelineLimit
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
			q.Limit = int(min(n, announce.MaxTimelineLimit))
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
				t = strings.TrimPrefix(t, announce.TypePrefix)
				if !announce.TypePattern.MatchString(t) {
					return bad(name, "give a type such as app.failed", "%q is not agent.WORD, app.WORD or route.WORD", printable.Clip(t))
				}
				q.Types = append(q.Types, announce.Type(t))
			}
		default:
			return bad(printable.Clip(name), "leave it out", "there is no such parameter")
		}
	}
	switch {
	case len(q.Types) > announce.MaxTimelineTypes:
		return bad("type", "ask for all, and choose", "is given more than %d times", announce.MaxTimelineTypes)
	case q.App != "" && q.Namespace == "":
		return bad("namespace", "say in which namespace the App is", "is missing")
	}
	return q, nil
}
