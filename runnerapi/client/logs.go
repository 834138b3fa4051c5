package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// resumeSlack is how far behind the newest line a resumed log begins: lines of
// another pod may have been on their way.
const resumeSlack = 10 * time.Second

// maxBroken is how many connections of a followed log may fail in a row.
const maxBroken = 5

// Logs calls emit for each line until the end of the log or, with Follow, until ctx ends. If a log
// breaks off because the agent was replaced or the connection was lost, Logs resumes it where it
// ended. By the lines' time stamps no line is repeated, and none is missing unless its pod is gone.
func (a Apps) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return a.logs(ctx, objectRequest("get-app-logs", key), opts, emit)
}

func (c *core) logs(ctx context.Context, r *request, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	res := &resumption{opts: opts, began: time.Now(), marks: map[string]mark{}}
	for n := 0; ; n++ {
		before := res.lines
		err := c.stream(ctx, r, res, emit)
		stop, known := &wire.StoppedError{}, &runnerapi.Error{}
		switch {
		case err == nil:
			return nil
		case opts.Follow && ctx.Err() != nil:
			return nil //nolint:nilerr // it is how a followed log ends
		case errors.As(err, &stop):
			return stop.Reason
		case errors.Is(err, bufio.ErrTooLong):
			return fmt.Errorf("agent %s: a line of the log has more than %d bytes", c.config.AgentID, wire.MaxLogLine)
		case ctx.Err() != nil:
			return err
		case errors.As(err, &known) && (!known.Passing() || res.hopeless(known)):
			return err
		}
		if res.lines > before {
			n = 0
		}
		if err := pause(ctx, n); err != nil && !opts.Follow {
			return err
		}
	}
}

// stream reads the log over one connection.
func (c *core) stream(ctx context.Context, r *request, res *resumption, emit func(runnerapi.LogLine) error) error {
	ctx, t := withTry(ctx)
	r.query, r.accept = res.next(), runnerapi.NDJSON
	resp, err := c.do(ctx, t, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	defer res.lasted(time.Now())
	return wire.ReadLog(resp.Body, func(line runnerapi.LogLine) error {
		if !res.fresh(line) {
			return nil
		}
		return emit(line)
	})
}

// mark is the newest line of a pod that was passed on.
type mark struct {
	at   time.Time
	same int // lines with this very time
}

// resumption knows which lines were passed on.
type resumption struct {
	opts   runnerapi.LogOptions
	began  time.Time
	lines  int
	broken int // connections in a row that failed and brought nothing
	newest time.Time
	marks  map[string]mark

	// Of the connection in progress: what is left to skip, by pod.
	skip map[string]mark
}

// lasted notes the end of a connection: one that held for a while was none of a
// series of failures.
func (r *resumption) lasted(since time.Time) {
	if time.Since(since) > headerTimeout {
		r.broken = 0
	}
}

// hopeless reports whether it is time to give up. Each failure to connect has had the client's
// whole patience already.
func (r *resumption) hopeless(e *runnerapi.Error) bool {
	if e.Code == CodeUntrusted || e.Code == CodeRefused || e.Code == runnerapi.CodeInternal {
		return true
	}
	r.broken++
	return !r.opts.Follow || r.broken > maxBroken
}

// next returns the query of the next connection.
func (r *resumption) next() map[string]string {
	r.skip = maps.Clone(r.marks)
	q := logQuery(r.opts)
	switch {
	case !r.newest.IsZero():
		from := r.newest.Add(-resumeSlack)
		if asked := r.began.Add(-r.opts.Since); r.opts.Since > 0 && asked.After(from) {
			from = asked
		}
		q["since"], q["tail"] = from.UTC().Format(time.RFC3339Nano), "-1"
	case r.opts.Follow && r.opts.Tail == 0 && time.Since(r.began) > time.Second:
		q["since"], q["tail"] = time.Since(r.began).String(), "-1"
	}
	return q
}

// fresh reports whether the line was not passed on before, and notes that it is now.
func (r *resumption) fresh(line runnerapi.LogLine) bool {
	if s, ok := r.skip[line.Pod]; ok {
		if line.Time.Before(s.at) {
			return false
		}
		if line.Time.Equal(s.at) && s.same > 0 {
			s.same--
			r.skip[line.Pod] = s
			return false
		}
		delete(r.skip, line.Pod) // caught up: from here on everything is new
	}
	m := r.marks[line.Pod]
	switch {
	case line.Time.Equal(m.at):
		m.same++
	case line.Time.After(m.at):
		m = mark{at: line.Time, same: 1}
	}
	r.marks[line.Pod] = m
	if line.Time.After(r.newest) {
		r.newest = line.Time
	}
	r.lines, r.broken = r.lines+1, 0
	return true
}

// logQuery returns the part of LogOptions that travels in the query.
func logQuery(o runnerapi.LogOptions) map[string]string {
	q := map[string]string{"tail": strconv.Itoa(o.Tail)}
	if o.Follow {
		q["follow"] = "true"
	}
	if o.Previous {
		q["previous"] = "true"
	}
	if o.Container != "" {
		q["container"] = o.Container
	}
	if o.Grep != "" {
		q["grep"] = o.Grep
	}
	if o.Since > 0 {
		q["since"] = o.Since.String()
	}
	return q
}
