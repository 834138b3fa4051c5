package web

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// searching returns a search of so many calls, and what was read.
func searching(calls int) (AuditSearch, *[]runnerapi.AuditFilter) {
	var read []runnerapi.AuditFilter
	return AuditSearch{Who: "Runner", Name: "audit", Empty: "None yet.", Read: func(_ context.Context, f runnerapi.AuditFilter) (found runnerapi.AuditList, err error) {
		read = append(read, f)
		from := int64(calls)
		if f.Before > 0 {
			from = f.Before - 1
		}
		for seq := from; seq > max(0, from-int64(f.Limit)); seq-- {
			found.Items = append(found.Items, runnerapi.AuditCall{Began: 3, AuditRecord: runnerapi.AuditRecord{
				Seq: seq, Time: time.Date(2026, 11, 21, 20, 14, 0, 0, time.UTC), Runner: "ci", Command: "put-app", Namespace: "shop", Name: "web", Outcome: runnerapi.AuditDone,
				Millis: 84, Message: `=HYPERLINK("https://evil.example.com")`, Arguments: []byte(`{"a":"<b>"}`),
			}})
		}
		if last := from - int64(f.Limit); last > 0 {
			found.Older = last + 1
		}
		found.Scanned, found.Head.Seq = len(found.Items), int64(calls)
		return found, nil
	}}, &read
}

func TestAuditSearch_Page(t *testing.T) {
	s, read := searching(120)
	query, err := url.ParseQuery("by=ci&app=shop%2Fweb&command=put&outcome=done&namespace=shop&text=x&since=2026-11-21T20:14&until=2026-11-22&verify=1")
	require.NoError(t, err)
	log, err := s.Page(t.Context(), query)
	require.NoError(t, err)
	assert.Equal(t, []runnerapi.AuditFilter{{
		By: "ci", App: "shop/web", Command: "put", Outcome: runnerapi.AuditDone, Limit: PageSize,
		Namespace: "shop", Text: "x", Since: "2026-11-21T20:14", Until: "2026-11-22",
	}}, *read)
	assert.True(t, log.Filtered())
	assert.Empty(t, log.Newest())
	older, err := url.ParseQuery(log.Next()[1:])
	require.NoError(t, err)
	assert.Equal(t, "71", older.Get("before"))
	assert.Equal(t, "shop/web", older.Get("app"), "the filter stays")
	assert.False(t, older.Has("verify"))

	pages, err := NewPages(Pages{}, fstest.MapFS{"templates/log.html": {Data: []byte(`{{define "content"}}{{template "audit-search" .Data}}{{template "audit" .Data}}{{end}}`)}})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	pages.Render(w, httptest.NewRequest(http.MethodGet, "/", nil), http.StatusOK, "log", Page{Data: log})
	for _, want := range []string{"84ms", "3, 120", "shop/web", "&lt;b&gt;", "50 records searched", "Older →", `value="2026-11-21T20:14"`, "<option selected>done"} {
		assert.Contains(t, w.Body.String(), want)
	}
}

// TestAuditSearch_UnknownValues show nothing, and read nothing.
func TestAuditSearch_UnknownValues(t *testing.T) {
	for _, query := range []string{"outcome=broken", "since=yesterday", "until=2026-13-01", "by=" + string(bytes.Repeat([]byte("a"), 300))} {
		s, read := searching(1)
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		log, err := s.Page(t.Context(), q)
		require.NoError(t, err)
		assert.Empty(t, log.Items)
		assert.NotEmpty(t, log.Wrong, query)
		w := httptest.NewRecorder()
		require.NoError(t, s.Export(w, httptest.NewRequest(http.MethodGet, "/audit?format=json&"+query, nil)))
		assert.JSONEq(t, `{"items":[],"older":0}`, w.Body.String())
		assert.Empty(t, *read)
	}
}

func TestAuditSearch_Export(t *testing.T) {
	s, read := searching(2500)
	get := func(format string) *httptest.ResponseRecorder {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/audit?by=ci&before=2001&format="+format, nil)
		require.True(t, s.Exporting(r))
		require.NoError(t, s.Export(w, r))
		assert.Equal(t, `attachment; filename="audit.`+format+`"`, w.Header().Get("Content-Disposition"))
		return w
	}
	w := get("csv")
	rows, err := csv.NewReader(w.Body).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2001)
	assert.Equal(t, []string{"number", "began", "time", "runner"}, rows[0][:4])
	assert.Equal(t, []string{
		"2000", "3", "2026-11-21T20:14:00Z", "ci", "put-app", "shop/web", "done", "0", "", `'=HYPERLINK("https://evil.example.com")`, "84", "", `{"a":"<b>"}`,
	}, rows[1])
	require.Len(t, *read, 2)
	assert.Equal(t, runnerapi.AuditFilter{By: "ci", Before: 1001, Limit: 1000}, (*read)[1])

	var list struct {
		Items []runnerapi.AuditCall
		Older int64
	}
	require.NoError(t, json.Unmarshal(get("json").Body.Bytes(), &list))
	require.Len(t, list.Items, 2000)
	assert.EqualValues(t, 1, list.Items[1999].Seq)

	s, _ = searching(maxExport + 5)
	w = httptest.NewRecorder()
	require.NoError(t, s.Export(w, httptest.NewRequest(http.MethodGet, "/audit?format=json", nil)))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	assert.Len(t, list.Items, maxExport)
	assert.EqualValues(t, 6, list.Older, "the file says where it ends")
}

// TestAuditSearch_ExportBreaksOff: what was not read whole is no file.
func TestAuditSearch_ExportBreaksOff(t *testing.T) {
	s, _ := searching(5000)
	read, calls := s.Read, 0
	s.Read = func(ctx context.Context, f runnerapi.AuditFilter) (runnerapi.AuditList, error) {
		if calls++; calls > 2 {
			return runnerapi.AuditList{}, errors.New("away")
		}
		return read(ctx, f)
	}
	r := httptest.NewRequest(http.MethodGet, "/audit?format=csv", nil)
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _ = s.Export(httptest.NewRecorder(), r) })
	require.ErrorContains(t, s.Export(httptest.NewRecorder(), r), "away")
}
