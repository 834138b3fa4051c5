package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

var someKnowledge = knowledge{
	budgets: map[string]time.Duration{"default": 10 * time.Second, "m/slow": time.Minute},
	skips:   []expectedSkip{{pkg: "m/*", test: "TestRoot*", reason: regexp.MustCompile("needs root")}},
}

// print feeds what `go test -json` would print to a report, and returns what that prints.
func print(j job, change func(*report), lines ...string) (string, error) {
	var out bytes.Buffer
	r := newReport(&out, someKnowledge)
	if change != nil {
		change(r)
	}
	r.jobs = []*job{&j}
	events := make(chan event)
	go func() {
		defer close(events)
		decode(strings.NewReader(strings.Join(lines, "\n")), &j, events)
	}()
	r.follow(events)
	err := r.summary()
	return out.String(), err
}

func TestPassed(t *testing.T) {
	out, err := print(job{}, nil,
		`{"Action":"start","Package":"m/a"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"noise\n"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestX","Elapsed":0.5}`,
		`{"Action":"pass","Package":"m/a","Elapsed":1.25}`,
		`{"Action":"start","Package":"m/b"}`,
		`{"Action":"output","Package":"m/b","Output":"ok  \tm/b\t(cached)\n"}`,
		`{"Action":"pass","Package":"m/b","Elapsed":0}`,
		`{"Action":"skip","Package":"m/no-test-files"}`,
		`go: a message of its own`,
	)
	require.NoError(t, err)
	require.Equal(t, "ok    m/a  1.2s\nok    m/b  (cached)\ngo: a message of its own\n\n"+
		"1 tests in 3 packages passed (1 of them cached), 0 skipped, 0s\n", out)
}

func TestNothingTestedIsAFailure(t *testing.T) {
	_, err := print(job{}, nil, `go: no packages`)
	require.ErrorContains(t, err, "no package was tested")
}

func TestAPatternThatMatchesNoTestIsAFailure(t *testing.T) {
	lines := []string{
		`{"Action":"output","Package":"m/a","Output":"testing: warning: no tests to run\n"}`,
		`{"Action":"pass","Package":"m/a","Elapsed":0.1}`,
	}
	j := job{name: "outages", part: "outages", args: []string{"-run", "TestGone"}, packages: []string{"m/a"}}
	out, err := print(j, nil, lines...)
	require.ErrorContains(t, err, "1 tests or packages failed")
	require.Contains(t, out, "FAIL  [outages] outages: its pattern matches no test: -run TestGone")
	_, err = print(job{}, nil, lines...)
	require.NoError(t, err, "packages without tests of this system exist")
	lines = append([]string{`{"Action":"pass","Package":"m/a","Test":"TestX"}`}, lines...)
	_, err = print(j, nil, lines...)
	require.NoError(t, err)
}

func TestWhatAnInterruptKeptFromRunningIsNoPatternWithoutTests(t *testing.T) {
	j := job{name: "outages", part: "outages", args: []string{"-run", "TestX"}, packages: []string{"m/a"}}
	out, err := print(j, nil, `{"Action":"start","Package":"m/a"}`)
	require.Error(t, err)
	require.NotContains(t, out, "matches no test")
}

func TestFailedSaysHowToRunItAgain(t *testing.T) {
	out, err := print(job{race: true, env: []string{"DATABASE=postgres"}}, nil,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX/part"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX/part","Output":"expected 1\n"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestX/part"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestX"}`,
		`{"Action":"fail","Package":"m/a"}`,
		`{"Action":"build-output","ImportPath":"m/b","Output":"b.go:1:1: syntax error\n"}`,
		`{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}`,
	)
	require.ErrorContains(t, err, "4 tests or packages failed")
	require.Contains(t, out, "expected 1")
	require.Contains(t, out, "b.go:1:1: syntax error")
	_, again, _ := strings.Cut(out, "to run again what failed:\n")
	flags := "  DATABASE=postgres CGO_ENABLED=1 go test -trimpath -timeout 40m -vet=off " + strings.Join(suite.RaceFlags, " ") + " "
	require.Equal(t, flags+"-run '^TestX$/^part$' -count=1 m/a\n"+flags+"-count=1 m/b\n", again)
}

func TestAnotherModuleIsRunAgainInItsFolder(t *testing.T) {
	require.Equal(t, "(cd sub && go test -trimpath -timeout 40m -vet=off -count=1 m/a)", job{dir: "sub"}.again("m/a", ""))
}

func TestPanicShowsWhatUnfinishedTestsPrinted(t *testing.T) {
	out, err := print(job{}, nil,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"panic: test timed out\n"}`,
		`{"Action":"fail","Package":"m/a"}`,
	)
	require.Error(t, err)
	require.Contains(t, out, "panic: test timed out")
	require.Contains(t, out, "go test -trimpath -timeout 40m -vet=off -count=1 m/a")
}

func TestVerboseNamesEachTest(t *testing.T) {
	out, err := print(job{args: []string{"-v"}}, nil,
		`{"Action":"output","Package":"m/e2e","Output":"cluster is up\n"}`,
		`{"Action":"run","Package":"m/e2e","Test":"TestX"}`,
		`{"Action":"pass","Package":"m/e2e","Test":"TestX","Elapsed":0.3}`,
		`{"Action":"output","Package":"m/e2e","Output":"PASS\n"}`,
		`{"Action":"output","Package":"m/e2e","Output":"ok  \tm/e2e\t4.0s\n"}`,
		`{"Action":"pass","Package":"m/e2e","Elapsed":4}`,
	)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, "cluster is up\npass  TestX  0.3s\nok    m/e2e  4.0s\n"), out)
}

func TestTheSlowestTestsAreNamed(t *testing.T) {
	var lines []string
	for _, test := range []string{"2", "31", "0.5", "7.04"} {
		lines = append(lines, `{"Action":"pass","Package":"m/a","Test":"Test`+test+`","Elapsed":`+test+`}`,
			`{"Action":"pass","Package":"m/a","Test":"Test`+test+`/part","Elapsed":`+test+`}`)
	}
	out, err := print(job{}, nil, append(lines, `{"Action":"pass","Package":"m/a","Elapsed":1}`)...)
	require.NoError(t, err)
	require.Contains(t, out, "slowest tests:\n    31.0s  m/a Test31\n     7.0s  m/a Test7.04\n     2.0s  m/a Test2\n\n")
}

func TestExceededBudgetsAreNamed(t *testing.T) {
	lines := []string{`{"Action":"pass","Package":"m/a","Elapsed":11}`, `{"Action":"pass","Package":"m/slow","Elapsed":59}`}
	out, err := print(job{}, func(r *report) { r.budgeted = true }, lines...)
	require.NoError(t, err)
	require.Contains(t, out, "budget (budgets.txt):\n    11.0s of 10s  m/a\n\n")
	require.NotContains(t, out, "59.0s of")
	out, err = print(job{}, nil, lines...)
	require.NoError(t, err)
	require.NotContains(t, out, "budget")
}

func TestSkippedTestsAreNamedWithTheirReasons(t *testing.T) {
	lines := []string{
		`{"Action":"run","Package":"m/a","Test":"TestRootOnly"}`,
		`{"Action":"output","Package":"m/a","Test":"TestRootOnly","Output":"    a_test.go:12: needs root\n"}`,
		`{"Action":"output","Package":"m/a","Test":"TestRootOnly","Output":"--- SKIP: TestRootOnly (0.00s)\n"}`,
		`{"Action":"skip","Package":"m/a","Test":"TestRootOnly","Elapsed":0}`,
		`{"Action":"pass","Package":"m/a","Elapsed":1}`,
	}
	strict := func(r *report) { r.strict = true }
	out, err := print(job{}, strict, lines...)
	require.NoError(t, err)
	require.Contains(t, out, "skipped:\n  needs root\n    m/a TestRootOnly\n")

	for i, line := range lines {
		lines[i] = strings.Replace(line, "needs root", "not today", 1)
	}
	out, err = print(job{}, strict, lines...)
	require.ErrorContains(t, err, "1 tests were skipped that are not in skips.txt")
	require.Contains(t, out, "not today\n    m/a TestRootOnly  NOT EXPECTED")
	_, err = print(job{}, nil, lines...)
	require.NoError(t, err, "on a developer's machine it is shown and fails nothing")
}

func TestASkipOfShortIsExpectedInShortJobsAlone(t *testing.T) {
	lines := []string{
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"    a_test.go:12: brings up a cluster\n"}`,
		`{"Action":"skip","Package":"m/a","Test":"TestX","Elapsed":0}`,
		`{"Action":"pass","Package":"m/a","Elapsed":1}`,
	}
	strict := func(r *report) {
		r.strict = true
		r.known.shortReasons = []string{"brings up a cluster"}
	}
	_, err := print(job{args: []string{"-short"}}, strict, lines...)
	require.NoError(t, err)
	_, err = print(job{}, strict, lines...)
	require.ErrorContains(t, err, "1 tests were skipped that are not in skips.txt")
}

func TestShortReasonsAreThoseOfTheSources(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a
func TestX(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("brings up a cluster")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}`), 0o600))
	reasons, err := shortReasons(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"brings up a cluster"}, reasons)
}

func TestCIIsStrictInAllThatItRuns(t *testing.T) {
	t.Setenv(strictly, "")
	require.False(t, isStrict("test"))
	t.Setenv(strictly, "true")
	for _, suite := range []string{"test", "cover", "race", "machines"} {
		require.True(t, isStrict(suite), suite)
	}
	require.False(t, isStrict("short"))
	require.False(t, isStrict("package"))
}

func TestHeartbeatNamesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out, someKnowledge)
		events := make(chan event)
		go func() {
			defer close(events)
			events <- event{Action: "run", Package: "m/slow", Test: "TestX"}
			events <- event{Action: "run", Package: "m/slow", Test: "TestX/part"}
			time.Sleep(20*time.Second + time.Millisecond)
			for _, test := range []string{"TestX/part", "TestX"} {
				events <- event{Action: "pass", Package: "m/slow", Test: test, job: &job{}}
			}
		}()
		r.follow(events)
		require.Equal(t, "...   15s, 0 packages done: slow TestX/part 15s\n", out.String())
	})
}
