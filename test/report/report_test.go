package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tell feeds what `go test -json` would say to a report.
func tell(args []string, lines ...string) (string, error) {
	var out bytes.Buffer
	r := newReport(&out, args)
	events := make(chan event)
	go func() {
		defer close(events)
		decode(strings.NewReader(strings.Join(lines, "\n")), events)
	}()
	r.follow(events)
	err := r.summary()
	return out.String(), err
}

func TestPassed(t *testing.T) {
	out, err := tell(nil,
		`{"Action":"start","Package":"m/a"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"noise\n"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestX","Elapsed":1}`,
		`{"Action":"pass","Package":"m/a","Elapsed":1.25}`,
		`{"Action":"start","Package":"m/b"}`,
		`{"Action":"output","Package":"m/b","Output":"ok  \tm/b\t(cached)\n"}`,
		`{"Action":"pass","Package":"m/b","Elapsed":0}`,
		`{"Action":"skip","Package":"m/no-test-files"}`,
		`go: a message of its own`,
	)
	require.NoError(t, err)
	require.Equal(t, "ok    m/a  1.2s\nok    m/b  (cached)\ngo: a message of its own\n1 tests in 3 packages passed, 0s\n", out)
}

func TestFailedSaysHowToRunItAgain(t *testing.T) {
	out, err := tell([]string{"-timeout", "5m", "-race", "m/a", "m/b"},
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX/part"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX/part","Output":"expected 1\n"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestX/part"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestX"}`,
		`{"Action":"fail","Package":"m/a"}`,
		`{"Action":"build-output","ImportPath":"m/b","Output":"b.go:1:1: syntax error\n"}`,
		`{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}`,
	)
	require.Error(t, err)
	require.Contains(t, out, "expected 1")
	require.Contains(t, out, "b.go:1:1: syntax error")
	_, again, _ := strings.Cut(out, "to run again what failed:\n")
	require.Equal(t, "  CGO_ENABLED=1 go test -timeout 5m -race -v -run '^TestX$/^part$' -count=1 m/a\n"+
		"  CGO_ENABLED=1 go test -timeout 5m -race -count=1 m/b\n", again)
}

func TestPanicShowsWhatUnfinishedTestsSaid(t *testing.T) {
	out, err := tell(nil,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"panic: test timed out\n"}`,
		`{"Action":"fail","Package":"m/a"}`,
	)
	require.Error(t, err)
	require.Contains(t, out, "panic: test timed out")
	require.Contains(t, out, "go test -count=1 m/a")
}

func TestVerboseNamesEachTest(t *testing.T) {
	out, err := tell([]string{"-v", "./e2e"},
		`{"Action":"output","Package":"m/e2e","Output":"cluster is up\n"}`,
		`{"Action":"run","Package":"m/e2e","Test":"TestX"}`,
		`{"Action":"pass","Package":"m/e2e","Test":"TestX","Elapsed":3}`,
		`{"Action":"output","Package":"m/e2e","Output":"PASS\n"}`,
		`{"Action":"output","Package":"m/e2e","Output":"ok  \tm/e2e\t4.0s\n"}`,
		`{"Action":"pass","Package":"m/e2e","Elapsed":4}`,
	)
	require.NoError(t, err)
	require.Equal(t, "cluster is up\npass  TestX  3.0s\nok    m/e2e  4.0s\n1 tests in 1 packages passed, 0s\n", out)
}

func TestHeartbeatNamesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out, nil)
		events := make(chan event)
		go func() {
			defer close(events)
			events <- event{Action: "run", Package: "m/slow", Test: "TestX"}
			events <- event{Action: "run", Package: "m/slow", Test: "TestX/part"}
			time.Sleep(20*time.Second + time.Millisecond)
			events <- event{Action: "pass", Package: "m/slow", Test: "TestX/part"}
			events <- event{Action: "pass", Package: "m/slow", Test: "TestX"}
		}()
		r.follow(events)
		require.Equal(t, "...   15s, 0 packages done: slow TestX/part 15s\n", out.String())
	})
}
