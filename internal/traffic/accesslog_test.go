package traffic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func read(t *testing.T, logs *traffic.AccessLogs, opts runnerapi.LogOptions) (lines []runnerapi.LogLine) {
	t.Helper()
	require.NoError(t, logs.Read(t.Context(), web, "pod-1", opts, func(l runnerapi.LogLine) error {
		lines = append(lines, l)
		return nil
	}))
	return lines
}

func TestAccessLog_Text(t *testing.T) {
	at := newClock()
	logs := traffic.New(at.now).Logs
	assert.Nil(t, logs.Of(web), "no log is kept before it is wanted")
	logs.Of(web).Add(at.now(), runnerapi.AccessEntry{})
	logs.Keep([]traffic.App{web})
	logs.Of(web).Add(at.now(), runnerapi.AccessEntry{
		RequestID: "id-1", Host: "shop.example.com", Method: "GET", Path: "/a\x1b[2J\u202eb\"", Status: 200, Sent: 5, DurationMillis: 12.5,
		Address: "203.0.113.7", UserAgent: strings.Repeat("u", 500) + "\r\nGET / 200",
	})
	lines := read(t, logs, runnerapi.LogOptions{Tail: -1})
	require.Len(t, lines, 1)
	assert.True(t, strings.HasPrefix(lines[0].Line, `203.0.113.7 "GET shop.example.com/a`), lines[0].Line)
	for _, text := range []string{lines[0].Line, lines[0].Request.Path, lines[0].Request.UserAgent} {
		assert.NotContains(t, text, "\x1b")
		assert.NotContains(t, text, "\n")
		assert.NotContains(t, text, "\u202e")
	}
	assert.LessOrEqual(t, len(lines[0].Request.UserAgent), 140)
	assert.Equal(t, "pod-1", lines[0].Pod)
	logs.Keep(nil)
	assert.Empty(t, read(t, logs, runnerapi.LogOptions{Tail: -1}), "the entries go with the wish for them")
}

func TestAccessLog_Selects(t *testing.T) {
	at := newClock()
	logs := traffic.New(at.now).Logs
	logs.Keep([]traffic.App{web})
	for i := range 1500 {
		logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: fmt.Sprintf("/%d", i), Method: "GET"})
		at.advance(time.Second)
	}
	lines := read(t, logs, runnerapi.LogOptions{Tail: -1})
	require.Len(t, lines, 1000)
	assert.Equal(t, "/500", lines[0].Request.Path)
	assert.Equal(t, "/1499", lines[999].Request.Path)
	assert.Len(t, read(t, logs, runnerapi.LogOptions{Tail: 7}), 7)
	assert.Len(t, read(t, logs, runnerapi.LogOptions{Tail: -1, Since: time.Minute}), 60)

	others := []traffic.App{web} // of which each gets its part of the room
	for i := range 63 {
		others = append(others, traffic.App{Namespace: "production", Name: fmt.Sprint(i)})
	}
	logs.Keep(others)
	lines = read(t, logs, runnerapi.LogOptions{Tail: -1})
	require.Len(t, lines, 128)
	assert.Equal(t, "/1499", lines[127].Request.Path)
	logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: "/new"})
	lines = read(t, logs, runnerapi.LogOptions{Tail: -1})
	assert.Equal(t, []string{"/1373", "/new"}, []string{lines[0].Request.Path, lines[127].Request.Path})
	logs.Keep([]traffic.App{web})
	logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: "/newer"})
	lines = read(t, logs, runnerapi.LogOptions{Tail: -1})
	require.Len(t, lines, 129)
	assert.Equal(t, []string{"/1373", "/newer"}, []string{lines[0].Request.Path, lines[128].Request.Path})
	for i := range 1300 {
		logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: fmt.Sprint(i)})
	}
	lines = read(t, logs, runnerapi.LogOptions{Tail: -1})
	require.Len(t, lines, 1000)
	for i, line := range lines {
		assert.Equal(t, fmt.Sprint(300+i), line.Request.Path)
	}
}

// TestAccessLog_Follow gets entries as they come, of a log that comes later, and one line for those
// that it missed.
func TestAccessLog_Follow(t *testing.T) {
	at := newClock()
	logs := traffic.New(at.now).Logs
	ctx, stop := context.WithCancel(t.Context())
	lines, hold := make(chan runnerapi.LogLine), make(chan struct{})
	await.Background(t, "a reader", func(context.Context) error {
		defer close(lines)
		_ = logs.Read(ctx, web, "pod-1", runnerapi.LogOptions{Tail: -1, Follow: true}, func(l runnerapi.LogLine) error {
			lines <- l
			<-hold
			return nil
		})
		return nil
	})
	logs.Keep([]traffic.App{web})
	logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: "/first"})
	assert.Equal(t, "/first", (<-lines).Request.Path)
	for i := range 1200 {
		logs.Of(web).Add(at.now(), runnerapi.AccessEntry{Path: fmt.Sprint(i)})
	}
	close(hold)
	missed := <-lines
	assert.Nil(t, missed.Request)
	assert.Contains(t, missed.Line, "200 requests are left out")
	assert.Equal(t, "200", (<-lines).Request.Path)
	go stop()
	for range lines { // until it ends
	}
}
