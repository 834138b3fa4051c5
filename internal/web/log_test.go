package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestLine_Level(t *testing.T) {
	for text, want := range map[string]string{
		`{"time":"x","level":"error","msg":"no INFO"}`: "error", `{"level":50,"msg":"x"}`: "error", `{"level":30}`: "info",
		`time=x level=warn msg="y"`: "warning", `E1129 19:02:20.1 1 main.go:1] no`: "error", "W1129 19:02:20.1 1 main.go:1] no": "warning",
		"2026-11-29 ERROR no database": "error", "[warn] slow": "warning", "panic: no database": "error", "error: no": "error",
		"Traceback (most recent call last):": "error", "java.lang.IllegalStateException: no": "error", "DEBUG x": "debug",
		"listening on :8080": "", "the terror: none": "", "errors are counted": "", "": "",
	} {
		assert.Equal(t, want, Line{Line: text}.Level(), text)
	}
}

func TestLogView_Matches(t *testing.T) {
	lines := []Line{{Pod: "web-1", Line: "ERROR no Database"}, {Pod: "web-2", Line: "WARN slow database"}, {Pod: "web-2", Line: "database"}}
	for query, want := range map[string]int{
		"": 3, "find=DATABASE": 3, "find=nothing": 0, "level=warning": 2, "level=error": 1, "pod=web-2": 2, "pod=web-2&level=warning&find=slow": 1, "level=nonsense": 3,
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		view, n := LogViewOf(values), 0
		for _, l := range lines {
			if view.Matches(l) {
				n++
			}
		}
		assert.Equal(t, want, n, query)
	}
	assert.Equal(t, 200, LogViewOf(url.Values{"tail": {"1000000"}}).Tail, "only those to choose from")
	assert.Equal(t, 5000, LogViewOf(url.Values{"tail": {"5000"}}).Tail)
}

// TestLogPage_Read keeps the newest lines, and follows after the last one.
func TestLogPage_Read(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	p := LogPage{LogView: LogView{Find: "a b"}, Hidden: []Hidden{{"app", "web"}}}
	require.NoError(t, p.Read(at, "/live", func(emit func(Line) error) error {
		for i := range 3 * maxFollowed {
			require.NoError(t, emit(Line{Time: at.Add(time.Duration(i)), Pod: "web-" + strconv.Itoa(i%2), Line: "a b " + strconv.Itoa(i)}))
		}
		return emit(Line{Time: at.Add(time.Second), Pod: "web-9", Line: "else"})
	}))
	assert.Len(t, p.Lines, maxFollowed)
	assert.Equal(t, "a b 29999", p.Lines[maxFollowed-1].Line)
	assert.Equal(t, []string{"web-0", "web-1", "web-9"}, p.Pods)
	assert.Equal(t, "/live?after=2026-11-29T12%3A00%3A01Z&app=web&find=a+b", p.Live)

	ended := LogPage{LogView: LogView{Previous: true, Pod: "web-7"}}
	require.NoError(t, ended.Read(at, "/live", func(func(Line) error) error { return nil }))
	assert.Empty(t, ended.Live, "a run that is over is not followed")
	assert.Equal(t, []string{"web-7"}, ended.Pods, "the chosen one")
}

func TestLogView_Download(t *testing.T) {
	refused := problem.Errorf(problem.Forbidden, "", "no right")
	read := func(lines []Line, err error) func(context.Context, func(Line) error) error {
		return func(_ context.Context, emit func(Line) error) error {
			for _, l := range lines {
				require.NoError(t, emit(l))
			}
			return err
		}
	}
	w := httptest.NewRecorder()
	lines := []Line{{Time: time.Unix(1, 0), Pod: "web-1", Line: "<b>\x1b[31m"}, {Time: time.Unix(2, 0), Pod: "web-2", Line: "else"}}
	require.NoError(t, LogView{Pod: "web-1"}.DownloadLog(t.Context(), w, "web", read(lines, nil)))
	assert.Equal(t, "attachment; filename=web.log", w.Header().Get("Content-Disposition"))
	assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Regexp(t, `^1970-01-01T00:00:01Z web-1 <b>[^\x1b]*\n$`, w.Body.String())

	w = httptest.NewRecorder()
	require.NoError(t, LogView{}.DownloadLog(t.Context(), w, "web", read(lines, refused)))
	assert.Contains(t, w.Body.String(), "The log broke off: no right")
	w = httptest.NewRecorder()
	require.ErrorIs(t, LogView{}.DownloadLog(t.Context(), w, "web", read(nil, refused)), refused, "a page says it")
	assert.Empty(t, w.Header())
	w = httptest.NewRecorder()
	require.NoError(t, LogView{}.DownloadLog(t.Context(), w, "web", read(nil, nil)))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.NotEmpty(t, w.Header().Get("Content-Disposition"))
}
