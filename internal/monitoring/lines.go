package monitoring

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	linesPage = 1000   // lines of one request
	maxLines  = 50_000 // lines of one call
)

// streams is Loki's answer to a range query:
// https://grafana.com/docs/loki/latest/reference/loki-http-api/#query-logs-within-a-range-of-time
type streams struct {
	Data struct {
		Result []struct {
			Stream map[string]string `json:"stream"`
			Values []entry           `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// entry is a line: ["1569266497240578000", "text"], and metadata in newer versions.
type entry struct {
	at   time.Time
	text string
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *entry) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("an entry of a log has %d parts", len(parts))
	}
	var stamp string
	if err := errors.Join(json.Unmarshal(parts[0], &stamp), json.Unmarshal(parts[1], &e.text)); err != nil {
		return err
	}
	nanos, err := strconv.ParseInt(stamp, 10, 64)
	e.at = time.Unix(0, nanos).UTC()
	return err
}

// lines reads an App's lines from Loki, page by page.
type lines struct {
	*Reader
	key       runnerapi.Key
	container string
	grep      string
	from, end time.Time
	at        *Component

	page []runnerapi.LogLine
	last bool                      // there is no further page
	had  map[runnerapi.LogLine]int // lines at the time from that were passed on
	all  int
}

// Lines implements logs.Archive. Without Loki there are none.
func (r *Reader) Lines(key runnerapi.Key, container string, since time.Time, grep string) func(context.Context) (runnerapi.LogLine, error) {
	now := r.now()
	if earliest := now.Add(-runnerapi.MaxHistory); since.Before(earliest) {
		since = earliest
	}
	l := &lines{Reader: r, key: key, container: container, grep: grep, from: since, end: now, had: map[runnerapi.LogLine]int{}}
	return l.next
}

func (l *lines) next(ctx context.Context) (runnerapi.LogLine, error) {
	for len(l.page) == 0 {
		if l.last {
			return runnerapi.LogLine{}, io.EOF
		}
		if err := l.turn(ctx); err != nil {
			return runnerapi.LogLine{}, err
		}
	}
	line := l.page[0]
	l.page = l.page[1:]
	if l.all++; l.all > maxLines {
		return runnerapi.LogLine{}, problem.Errorf(problem.Invalid, "ask for a shorter --since, or for lines with a text: --grep",
			"the log has more than %d lines in Loki", maxLines)
	}
	return line, nil
}

func (l *lines) query() string {
	query := selector("", equals("namespace", l.key.Namespace), equals("app", l.key.Name), equals("container", l.container))
	if l.grep != "" {
		query += " |= " + quoted(l.grep)
	}
	return query
}

// turn reads the next page.
func (l *lines) turn(ctx context.Context) error {
	if l.at == nil {
		at, err := l.find(ctx, loki)
		if l.at = at; err != nil || at == nil {
			l.last = true
			return err
		}
	}
	var answer streams
	if err := l.getFrom(ctx, loki, l.at, "/loki/api/v1/query_range", url.Values{
		"query": {l.query()}, "direction": {"forward"}, "limit": {strconv.Itoa(linesPage)},
		"start": {strconv.FormatInt(l.from.UnixNano(), 10)}, "end": {strconv.FormatInt(l.end.UnixNano(), 10)},
	}, &answer); err != nil {
		return err
	}
	l.take(answer)
	return nil
}

// take makes a page of an answer. The next one begins at the time of the last line, because others
// may have the same.
func (l *lines) take(answer streams) {
	var found int
	begin, had := l.from, l.had
	newest := begin
	for _, s := range answer.Data.Result {
		found += len(s.Values)
		if s.Stream["namespace"] != l.key.Namespace || s.Stream["app"] != l.key.Name || s.Stream["container"] != l.container {
			continue // it was not asked for
		}
		for _, e := range s.Values {
			line := runnerapi.LogLine{Time: e.at, Pod: text(s.Stream["pod"]), Line: e.text}
			switch {
			case e.at.Before(begin) || e.at.After(l.end) || !strings.Contains(e.text, l.grep):
				continue
			case e.at.Equal(begin) && had[line] > 0:
				had[line]--
				continue
			}
			l.page = append(l.page, line)
			if e.at.After(newest) {
				newest = e.at
			}
		}
	}
	slices.SortStableFunc(l.page, func(a, b runnerapi.LogLine) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Pod, b.Pod)) })
	l.last = found < linesPage || len(l.page) == 0
	l.had = map[runnerapi.LogLine]int{}
	for _, line := range l.page {
		if line.Time.Equal(newest) {
			l.had[line]++
		}
	}
	if l.from = newest; newest.Equal(begin) { // a page of lines at one time: no request gets past it
		l.from, l.had = newest.Add(time.Nanosecond), map[runnerapi.LogLine]int{}
	}
}
