package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// withApp is an agent that runs web.
func withApp(t *testing.T) (*runnertest.Agent, *client.Client) {
	t.Helper()
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	return agent, c
}

// lines makes log lines a second apart that begin a minute ago.
func lines(from, to int) []runnerapi.LogLine {
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	var out []runnerapi.LogLine
	for i := from; i < to; i++ {
		out = append(out, runnerapi.LogLine{Time: start.Add(time.Duration(i) * time.Second), Pod: fmt.Sprintf("web-%d", i%2), Line: fmt.Sprint("line ", i)})
	}
	return out
}

func texts(lines []runnerapi.LogLine) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.Line
	}
	return out
}

func collect(into *[]runnerapi.LogLine) func(runnerapi.LogLine) error {
	return func(l runnerapi.LogLine) error { *into = append(*into, l); return nil }
}

func TestLogs_Tail(t *testing.T) {
	agent, c := withApp(t)
	all := lines(0, 10)
	agent.Backend.Log(all...)
	var got []runnerapi.LogLine
	require.NoError(t, c.Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Tail: 3}, collect(&got)))
	assert.Equal(t, texts(all[7:]), texts(got))
	got = nil
	require.NoError(t, c.Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Tail: -1, Since: 55500 * time.Millisecond}, collect(&got)))
	assert.Less(t, len(got), 10)
	err := c.Apps().Logs(ctxFor(t), runnerapi.Key{Namespace: "production", Name: "none"}, runnerapi.LogOptions{Follow: true}, collect(&got))
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err))
}

func TestLogs_KeepOrder(t *testing.T) {
	agent, c := withApp(t)
	var all []runnerapi.LogLine
	start := time.Now().Add(-time.Hour)
	for i := range 20_000 {
		all = append(all, runnerapi.LogLine{Time: start.Add(time.Duration(i) * time.Millisecond), Pod: "web-1", Line: fmt.Sprint(i, strings.Repeat(" <é&>", i%50))})
	}
	agent.Backend.Log(all...)
	var got []runnerapi.LogLine
	require.NoError(t, c.Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Tail: -1}, collect(&got)))
	assert.Equal(t, texts(all), texts(got))
}

func TestLogs_EndWithCaller(t *testing.T) {
	agent, c := withApp(t)
	agent.Backend.Log(lines(0, 1)...)
	ctx, cancel := context.WithCancel(ctxFor(t))
	defer cancel()
	got := make(chan runnerapi.LogLine, 16)
	done := make(chan error, 1)
	go func() {
		done <- c.Apps().Logs(ctx, web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error { got <- l; return nil })
	}()
	assert.Equal(t, "line 0", await.Receive(t, got, "the first line").Line)
	agent.Backend.Log(lines(1, 2)...)
	assert.Equal(t, "line 1", await.Receive(t, got, "the next line").Line, "lines come as they are written")
	cancel()
	require.NoError(t, await.Receive(t, done, "the end of the log"))
	await.Until(t, "the agent follows no log", func() bool { return agent.Backend.Following() == 0 })
}

func TestLogs_EndWithReceiver(t *testing.T) {
	agent, c := withApp(t)
	agent.Backend.Log(lines(0, 3)...)
	enough := errors.New("enough")
	err := c.Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(runnerapi.LogLine) error { return enough })
	require.ErrorIs(t, err, enough)
	await.Until(t, "the agent follows no log", func() bool { return agent.Backend.Following() == 0 })
}

func TestLogs_SurviveRestart(t *testing.T) {
	t.Parallel()
	agent, c := withApp(t)
	all := lines(0, 12)
	all[5].Time, all[5].Pod = all[3].Time, all[3].Pod // two lines of one pod at one time
	agent.Backend.Log(all[:6]...)
	ctx, cancel := context.WithCancel(ctxFor(t))
	defer cancel()
	var mu sync.Mutex
	var got []runnerapi.LogLine
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	done := make(chan error, 1)
	go func() {
		done <- c.Apps().Logs(ctx, web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l)
			return nil
		})
	}()
	await.Until(t, "six lines have come", func() bool { return count() == 6 })
	agent.Stop()
	agent.Backend.Log(all[6:9]...)
	agent.Start()
	await.Until(t, "the lines of the absence have come", func() bool { return count() == 9 })
	agent.Backend.Log(all[9:]...)
	await.Until(t, "all lines have come", func() bool { return count() == 12 })
	cancel()
	require.NoError(t, await.Receive(t, done, "the end of the log"))
	assert.Equal(t, texts(all), texts(got))
}

func TestLogs_ReportError(t *testing.T) {
	agent, _ := withApp(t)
	agent.Backend.Log(lines(0, 1)...)
	agent.Backend.EndLogs(&runnerapi.Error{Status: 409, Code: runnerapi.CodeConflict, Detail: "the pod is gone", Fix: "look at the App"})
	r := newRaw(t, agent)
	resp, body := r.do(http.MethodGet, appPath+"/logs", "")
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, runnerapi.NDJSON, resp.Header.Get("Content-Type"))
	first, last, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	assert.Contains(t, first, `"line":"line 0"`)
	assert.Contains(t, last, `{"error":{`)
	assert.Contains(t, last, "the pod is gone")

	var got []runnerapi.LogLine
	err := agent.Client().Apps().Logs(ctxFor(t), web, runnerapi.LogOptions{Tail: -1}, collect(&got))
	assert.Equal(t, runnerapi.CodeConflict, codeOf(t, err))
	assert.Len(t, got, 1)

	resp, body = r.do(http.MethodGet, appPath+"/logs?tail=1", "", "Accept", "text/plain")
	assert.Equal(t, runnerapi.PlainText, resp.Header.Get("Content-Type"))
	assert.Equal(t, "line 0\nerror: the pod is gone (fix: look at the App)\n", string(body))
}

// A reader that stops must not hold up other calls.
func TestLogs_StalledReader(t *testing.T) {
	agent, c := withApp(t)
	var all []runnerapi.LogLine
	for range 3000 {
		all = append(all, runnerapi.LogLine{Time: time.Now(), Pod: "p", Line: strings.Repeat("x", 16<<10)})
	}
	agent.Backend.Log(all...)
	release := make(chan struct{})
	started := make(chan struct{})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctxFor(t))
	go func() {
		var once sync.Once
		done <- c.Apps().Logs(ctx, web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(runnerapi.LogLine) error {
			once.Do(func() { close(started) })
			<-release
			return nil
		})
	}()
	await.Closed(t, started, "the first line")
	_, err := c.Cluster().Get(ctxFor(t))
	require.NoError(t, err, "other calls on the same connection go on")
	cancel()
	close(release)
	require.NoError(t, await.Receive(t, done, "the end of the log"))
}

func FuzzDecodeLogLine(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-02T03:04:05Z","pod":"a","line":"b"}`))
	f.Add([]byte(`{"error":{"code":"unavailable","detail":"x"}}`))
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n := 0
		err := server.ReadLog(strings.NewReader(string(raw)), func(runnerapi.LogLine) error { n++; return nil })
		_, lineErr := server.DecodeLogLine(raw)
		require.True(t, (lineErr == nil || err != nil) || n <= strings.Count(string(raw), "\n")+1, "more lines than there are")
	})
}

func FuzzParseSince(f *testing.F) {
	now := time.Now()
	for _, s := range []string{"10m", "-1s", "2026-01-02T03:04:05Z", "", "9999999h", "0001-01-01T00:00:00Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := server.ParseSince(s, now)
		if err == nil && (d < 0 || d == 0 && s != "") {
			t.Fatalf("%q: %s", s, d)
		}
	})
}
