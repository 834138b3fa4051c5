package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// logOf is a log of these records, in order.
func logOf(t *testing.T, records ...runnerapi.AuditRecord) audit.Store {
	t.Helper()
	store := audit.Files{Dir: t.TempDir()}
	l := audit.New(store, "r1", zerolog.Nop())
	stop := running(t, l)
	for _, r := range records {
		require.NoError(t, l.Keep(t.Context(), r))
	}
	stop()
	return store
}

func find(t *testing.T, s audit.Store, f runnerapi.AuditFilter) runnerapi.AuditList {
	t.Helper()
	found, err := audit.Search(t.Context(), s, f, nil)
	require.NoError(t, err)
	require.NotZero(t, found.Head.Seq)
	return found
}

// seen names the calls that were found, newest first.
func seen(found runnerapi.AuditList) (list []string) {
	for _, c := range found.Items {
		list = append(list, fmt.Sprint(c.RequestID, " ", c.Outcome, " ", c.Began, "-", c.Seq))
	}
	return list
}

func ids(found runnerapi.AuditList) (list []string) {
	for _, c := range found.Items {
		list = append(list, c.RequestID)
	}
	return list
}

func at(minute int) time.Time { return time.Date(2026, 11, 21, 20, minute, 0, 0, time.UTC) }

func on(minute int) string { return at(minute).Format(time.RFC3339) }

// call is a record of a call with that ID, which came in that minute.
func call(id string, minute int, outcome runnerapi.AuditOutcome, change ...func(*runnerapi.AuditRecord)) runnerapi.AuditRecord {
	r := runnerapi.AuditRecord{Time: at(minute), Runner: "ci", RequestID: id, Command: "put-app", Namespace: "shop", Name: "web", Outcome: outcome, Millis: 7}
	if outcome == runnerapi.AuditBegun {
		r.Millis = 0
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// TestFind_OneRowACall searches two calls that overlap, one that has not ended, and one of one
// record, in pages of each size.
func TestFind_OneRowACall(t *testing.T) {
	log := logOf(t,
		call("a", 1, runnerapi.AuditBegun), call("b", 2, runnerapi.AuditBegun), call("a", 1, runnerapi.AuditDone),
		call("c", 3, runnerapi.AuditRefused), call("b", 2, runnerapi.AuditFailed), call("d", 4, runnerapi.AuditBegun))
	assert.Equal(t, []string{"d begun 0-6", "b failed 2-5", "c refused 0-4", "a done 1-3"}, seen(find(t, log, runnerapi.AuditFilter{})))
	for limit := 1; limit <= 5; limit++ {
		var all []string
		for f := (runnerapi.AuditFilter{Limit: limit}); ; {
			found := find(t, log, f)
			require.LessOrEqual(t, len(found.Items), limit)
			for _, c := range found.Items {
				all = append(all, c.RequestID+" "+string(c.Outcome))
			}
			if f.Before = found.Older; f.Before == 0 {
				break
			}
		}
		assert.Equal(t, []string{"d begun", "b failed", "c refused", "a done"}, all, "%d a page", limit)
	}
}

// TestFind_FiltersRecent has what the records of TestFind_Filters have not: a time near now, and
// more texts.
func TestFind_FiltersRecent(t *testing.T) {
	ago := func(hours int, change func(*runnerapi.AuditRecord)) runnerapi.AuditRecord {
		return call(fmt.Sprint("req-", hours), 0, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) {
			r.Time = time.Now().Add(-time.Duration(hours) * time.Hour)
			change(r)
		})
	}
	log := logOf(t,
		ago(72, func(r *runnerapi.AuditRecord) { r.Namespace, r.Message = "shop-test", "by the rule Nights" }),
		ago(3, func(r *runnerapi.AuditRecord) { r.Arguments = []byte(`{"body":{"image":"registry/web:7"}}`) }),
		ago(1, func(r *runnerapi.AuditRecord) {
			r.Namespace, r.Name, r.Operation = "", "bakery", "op-9"
			r.Arguments = []byte(`{"namespace":"shop","app":"api"}`)
		}))
	for want, f := range map[string]runnerapi.AuditFilter{
		"req-72": {Until: "1d"}, "req-1 req-3": {Since: "1d"}, "req-3": {Since: "1d", Until: "2h"}, "req-1": {Namespace: "shop", Until: "1m", Since: "2h"},
	} {
		assert.Equal(t, want, strings.Join(ids(find(t, log, f)), " "), "%+v", f)
	}
	for want, f := range map[string]runnerapi.AuditFilter{
		"req-1 req-3": {Namespace: "shop"}, "req-72": {Text: "nights"}, "req-3": {Text: "WEB:7"}, "req-1": {Text: "op-9", Namespace: "shop"},
	} {
		assert.Equal(t, want, strings.Join(ids(find(t, log, f)), " "), "%+v", f)
	}
	assert.Empty(t, find(t, log, runnerapi.AuditFilter{Text: "durationMs"}).Items, "names of fields are no text")
}

func TestFind_InvalidFilter(t *testing.T) {
	for field, f := range map[string]runnerapi.AuditFilter{
		"query.since": {Since: "yesterday"}, "query.until": {Until: "2026-13-01"}, "query.outcome": {Outcome: "broken"},
		"query.limit": {Limit: -1}, "query.text": {Text: strings.Repeat("a", 300)},
	} {
		_, err := audit.Search(t.Context(), logOf(t, call("a", 1, runnerapi.AuditDone)), f, nil)
		p, ok := errors.AsType[*problem.Error](err)
		require.True(t, ok, "%+v: %v", f, err)
		assert.Equal(t, field, p.Field)
		assert.NotEmpty(t, p.Fix)
		require.Error(t, audit.Check(f))
	}
}

// TestFind_Hidden: what is hidden is on no page, and whether a filter selects it is not visible
// either.
func TestFind_Hidden(t *testing.T) {
	hidden := func(r *runnerapi.AuditRecord) { r.Namespace = "payroll" }
	log := logOf(t, call("a", 1, runnerapi.AuditDone), call("b", 2, runnerapi.AuditDone, hidden), call("c", 3, runnerapi.AuditDone), call("d", 4, runnerapi.AuditDone, hidden))
	visible := func(r runnerapi.AuditRecord) bool { return r.Namespace != "payroll" }
	var all []string
	for f := (runnerapi.AuditFilter{Limit: 1}); ; {
		list, err := audit.Search(t.Context(), log, f, visible)
		require.NoError(t, err)
		all = append(all, seen(list)...)
		if f.Before = list.Older; f.Before == 0 {
			break
		}
	}
	assert.Equal(t, []string{"c done 0-3", "a done 0-1"}, all)
	var lists []runnerapi.AuditList
	for _, namespace := range []string{"payroll", "nowhere"} {
		list, err := audit.Search(t.Context(), log, runnerapi.AuditFilter{Namespace: namespace, Limit: 1}, visible)
		require.NoError(t, err)
		lists = append(lists, list)
	}
	assert.Equal(t, lists[1], lists[0])
}

func TestFind_Filters(t *testing.T) {
	log := logOf(t,
		call("a", 1, runnerapi.AuditDone),
		call("b", 2, runnerapi.AuditBegun, func(r *runnerapi.AuditRecord) { r.Runner, r.Actor = "builder", "openid/Alice@example.com" }),
		call("b", 2, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) { r.Runner, r.Actor = "builder", "openid/Alice@example.com" }),
		call("c", 50, runnerapi.AuditRefused, func(r *runnerapi.AuditRecord) { r.Command, r.Name = "put-secret", "db" }),
		call("d", 51, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) {
			r.Namespace, r.Name, r.Arguments = "", "bakery", []byte(`{"agent":"bakery","namespace":"production","app":"api"}`)
		}))
	for want, f := range map[string]runnerapi.AuditFilter{
		"[d done 0-5 c refused 0-4 b done 2-3 a done 0-1]": {},
		"[b done 2-3]":            {By: "alice@"},
		"[b done 2-3 a done 0-1]": {App: "Shop/web"},
		"[d done 0-5]":            {App: "production/api"},
		"[c refused 0-4]":         {Command: "secret"},
		"[]":                      {Outcome: runnerapi.AuditBegun},
		"[d done 0-5 c refused 0-4]": {
			Since: on(50),
		},
		"[a done 0-1]": {Until: on(2)},
	} {
		assert.Equal(t, want, fmt.Sprint(seen(find(t, log, f))), "%+v", f)
	}
	for _, f := range []runnerapi.AuditFilter{{By: "nobody"}, {App: "x"}, {Since: on(52)}, {Until: on(1)}, {Command: "put-app", Outcome: runnerapi.AuditRefused}} {
		assert.Empty(t, find(t, log, f).Items, "%+v", f)
	}
}

// TestFind_LongCall: a call that ended long after the searched time has its end.
func TestFind_LongCall(t *testing.T) {
	records := []runnerapi.AuditRecord{call("a", 1, runnerapi.AuditBegun)}
	for i := range 20 {
		records = append(records, call(fmt.Sprint("other-", i), 30+i, runnerapi.AuditDone))
	}
	records = append(records, call("a", 1, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) { r.Millis = time.Hour.Milliseconds() }))
	found := find(t, logOf(t, records...), runnerapi.AuditFilter{Until: on(2)})
	assert.Equal(t, []string{"a done 1-22"}, seen(found))
	assert.Less(t, found.Scanned, 5, "it begins where the time is")
}

// TestFind_Bounded: a search that finds nothing ends, and can go on.
func TestFind_Bounded(t *testing.T) {
	log := bigLog{audit.MaxScan + 100}
	found, err := audit.Find(t.Context(), log, runnerapi.AuditFilter{By: "nobody"}, nil)
	require.NoError(t, err)
	assert.Equal(t, audit.MaxScan, found.Scanned)
	require.EqualValues(t, 101, found.Older)
	found, err = audit.Find(t.Context(), log, runnerapi.AuditFilter{By: "nobody", Before: found.Older}, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{100, int64(0)}, []any{found.Scanned, found.Older})
}

// bigLog is a log of that many records.
type bigLog struct{ records int64 }

func (l bigLog) Back(_ context.Context, place int64, limit int) (list []audit.Entry, err error) {
	for n := min(l.records, place-1); n > 0 && len(list) < limit; n-- {
		list = append(list, audit.Entry{Place: n, AuditRecord: call("", 1, runnerapi.AuditDone)})
	}
	return list, nil
}

func (l bigLog) Ahead(context.Context, int64, int) ([]audit.Entry, error) { return nil, nil }
