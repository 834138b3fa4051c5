package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestLines_ResumeAfterLast line of the page, and of a stream that broke off.
func TestLines_ResumeAfterLast(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	r := httptest.NewRequest(http.MethodGet, "/?after=2026-05-04T11:59:50.5Z", nil)
	since := func() time.Duration {
		_, since := LinesAfter(LastLine(r), now, 200)
		return since
	}
	assert.Equal(t, 9500*time.Millisecond, since())
	r.Header.Set("Last-Event-ID", "2026-05-04T11:59:58Z")
	assert.Equal(t, 2*time.Second, since())
	r.Header.Set("Last-Event-ID", "nonsense")
	tail, none := LinesAfter(LastLine(r), now, 200)
	assert.Zero(t, tail)
	assert.Zero(t, none)
}

// TestLines_Batched escapes control characters.
func TestLines_Batched(t *testing.T) {
	w := httptest.NewRecorder()
	stream, done, err := NewStreams(1).Open(w, request(t))
	assert.NoError(t, err)
	defer done()
	lines := make(chan Line)
	go func() {
		defer close(lines)
		for range maxBatch {
			lines <- Line{Time: time.Unix(1, 0).UTC(), Pod: "web-1", Line: "<b>\x1b[31m"}
		}
	}()
	assert.NoError(t, stream.sendLines(t.Context(), lines))
	assert.Contains(t, w.Body.String(), "id: 1970-01-01T00:00:01Z\n")
	assert.Contains(t, w.Body.String(), "&lt;b&gt;")
	assert.NotContains(t, w.Body.String(), "\x1b")
}
