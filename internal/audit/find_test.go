package audit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
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

func find(t *testing.T, s audit.Store, f audit.Filter) audit.Found {
	t.Helper()
	found, err := audit.Search(t.Context(), s, f)
	require.NoError(t, err)
	require.NotZero(t, found.Head.Seq)
	return found
}

// seen names the calls that were found, newest first.
func seen(found audit.Found) (list []string) {
	for _, c := range found.Calls {
		list = append(list, fmt.Sprint(c.RequestID, " ", c.Outcome, " ", c.Began, "-", c.Seq))
	}
	return list
}

func at(minute int) time.Time { return time.Date(2026, 11, 21, 20, minute, 0, 0, time.UTC) }

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
	assert.Equal(t, []string{"d begun 0-6", "b failed 2-5", "c refused 0-4", "a done 1-3"}, seen(find(t, log, audit.Filter{})))
	for limit := 1; limit <= 5; limit++ {
		var all []string
		for f := (audit.Filter{Limit: limit}); ; {
			found := find(t, log, f)
			require.LessOrEqual(t, len(found.Calls), limit)
			for _, c := range found.Calls {
				all = append(all, c.RequestID+" "+string(c.Outcome))
			}
			if f.Before = found.Older; f.Before == 0 {
				break
			}
		}
		assert.Equal(t, []string{"d begun", "b failed", "c refused", "a done"}, all, "%d a page", limit)
	}
}

func TestFind_Filters(t *testing.T) {
	log := logOf(t,
		call("a", 1, runnerapi.AuditDone),
		call("b", 2, runnerapi.AuditBegun, func(r *runnerapi.AuditRecord) { r.Runner, r.Operator = "builder", "openid/Alice@example.com" }),
		call("b", 2, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) { r.Runner, r.Operator = "builder", "openid/Alice@example.com" }),
		call("c", 50, runnerapi.AuditRefused, func(r *runnerapi.AuditRecord) { r.Command, r.Name = "put-secret", "db" }),
		call("d", 51, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) {
			r.Namespace, r.Name, r.Arguments = "", "bakery", []byte(`{"agent":"bakery","namespace":"production","app":"api"}`)
		}))
	for want, f := range map[string]audit.Filter{
		"[d done 0-5 c refused 0-4 b done 2-3 a done 0-1]": {},
		"[b done 2-3]":            {By: "alice@"},
		"[b done 2-3 a done 0-1]": {App: "Shop/web"},
		"[d done 0-5]":            {App: "production/api"},
		"[c refused 0-4]":         {Command: "secret"},
		"[]":                      {Outcome: runnerapi.AuditBegun},
		"[d done 0-5 c refused 0-4]": {
			From: at(50),
		},
		"[a done 0-1]": {To: at(2)},
	} {
		assert.Equal(t, want, fmt.Sprint(seen(find(t, log, f))), "%+v", f)
	}
	for _, f := range []audit.Filter{{By: "nobody"}, {App: "x"}, {From: at(52)}, {To: at(1)}, {Command: "put-app", Outcome: runnerapi.AuditRefused}} {
		assert.Empty(t, find(t, log, f).Calls, "%+v", f)
	}
}

// TestFind_LongCall: a call that ended long after the searched time has its end.
func TestFind_LongCall(t *testing.T) {
	records := []runnerapi.AuditRecord{call("a", 1, runnerapi.AuditBegun)}
	for i := range 20 {
		records = append(records, call(fmt.Sprint("other-", i), 30+i, runnerapi.AuditDone))
	}
	records = append(records, call("a", 1, runnerapi.AuditDone, func(r *runnerapi.AuditRecord) { r.Millis = time.Hour.Milliseconds() }))
	found := find(t, logOf(t, records...), audit.Filter{To: at(2)})
	assert.Equal(t, []string{"a done 1-22"}, seen(found))
	assert.Less(t, found.Scanned, 5, "it begins where the time is")
}

// TestFind_Bounded: a search that finds nothing ends, and can go on.
func TestFind_Bounded(t *testing.T) {
	log := bigLog{audit.MaxScan + 100}
	found, err := audit.Find(t.Context(), log, audit.Filter{By: "nobody"})
	require.NoError(t, err)
	assert.Equal(t, audit.MaxScan, found.Scanned)
	require.EqualValues(t, 101, found.Older)
	found, err = audit.Find(t.Context(), log, audit.Filter{By: "nobody", Before: found.Older})
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
