package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain makes this program the suite, which gotestsum runs to execute a plan.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "execute" {
		main()
	}
	os.Exit(m.Run())
}

const (
	passes = `func TestGood_Passes(t *testing.T) {}`
	// everyOther fails the first time, the third time, and so on.
	everyOther = `func TestChance_FailsEveryOtherTime(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		n, _ := os.ReadFile("count")
		os.WriteFile("count", append(n, 'x'), 0o600)
		if len(n)%2 == 0 { t.Fatal("failed by chance") }
	})
}`
	always = `func TestBad_Fails(t *testing.T) { t.Fatal("failed always") }`
	races  = `func TestRace_IsFinal(t *testing.T) {
	n := 0
	done := make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
	_ = n
}`
	panics  = `func TestPanic_IsFinal(t *testing.T) { panic("it") }`
	leaks   = `func TestLeak_IsFinal(t *testing.T) { t.Error("found unexpected goroutines:") }`
	outside = `func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`
	broken  = `func TestBroken(t *testing.T) { undefined() }`
)

// TestRun_RepeatsFailures runs the real gotestsum over a small module for each kind of failure.
func TestRun_RepeatsFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles several packages")
	}
	for name, c := range map[string]struct {
		tests []string
		race  bool
		fails bool
		says  string
		runs  int // of the first test that failed
	}{
		"passes":         {tests: []string{passes}, says: "DONE 1 tests in"},
		"by chance":      {tests: []string{passes, everyOther}, says: "FLAKY p TestChance_FailsEveryOtherTime: fail, pass", runs: 2},
		"always":         {tests: []string{passes, always}, fails: true, says: "make t PKG=./p RUN='^TestBad_Fails$'", runs: 3},
		"beside another": {tests: []string{everyOther, always}, fails: true, says: "failed always", runs: 3},
		"race":           {tests: []string{races}, race: true, fails: true, says: "data race", runs: 1},
		"panic":          {tests: []string{panics}, fails: true, says: "suspected panic", runs: 1},
		"leak":           {tests: []string{leaks}, fails: true, says: "not repeated: p TestLeak_IsFinal: goroutines leaked", runs: 1},
		"outside":        {tests: []string{outside, passes}, fails: true, says: "not repeated: p failed outside of its tests"},
		"does not build": {tests: []string{broken}, fails: true, says: "undefined: undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			out, seen, err := tryOut(t, flakyList{filepath.Join(t.TempDir(), "flaky.json")}, job{Packages: []string{"p"}, Race: c.race}, c.tests...)
			require.Equal(t, c.fails, err != nil, "%v\n%s", err, out)
			require.Contains(t, out, c.says)
			if c.runs > 0 {
				require.Contains(t, lengths(seen), c.runs, out)
			}
		})
	}
}

func TestFlaky_FailsThirdRunInARow(t *testing.T) {
	list := flakyList{filepath.Join(t.TempDir(), "flaky.json")}
	chance := test{modulePath + "/p", "TestChance"}
	run := func(outcomes ...string) (string, error) {
		var out bytes.Buffer
		list.print(&out)
		err := list.record(&out, results{outcomes: map[test][]string{chance: outcomes}})
		return out.String(), err
	}
	_, err := run("fail", "pass")
	require.NoError(t, err)
	out, err := run("fail", "fail", "pass")
	require.NoError(t, err)
	require.Contains(t, out, "p TestChance: 1 runs, 1 in a row, last 20")
	_, err = run("pass")
	require.NoError(t, err)
	for range 2 {
		_, err = run("fail", "pass")
		require.NoError(t, err)
	}
	_, err = run("fail", "pass")
	require.EqualError(t, err, "flaky 3 runs in a row: p TestChance")
}

func TestPlan_RunsEveryTestOnce(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", ".."))
	m, err := loadModule(t.Context())
	require.NoError(t, err)
	before := map[string]int{}
	for _, j := range testPlan(m).jobs() {
		for _, pkg := range j.Packages {
			before[pkg]++
		}
	}
	for _, pkg := range m.tested() {
		require.Equal(t, 1, before[pkg], pkg)
	}
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			require.NotEmpty(t, j.Packages, "part %s: %s", p.name, j.Name)
		}
	}
	// What `make test` leaves out is in a part.
	for _, pkg := range m.tested() {
		for _, name := range m.longTestsOf(pkg) {
			require.True(t, inPart(m, pkg, name), "%s %s is in no part", pkg, name)
		}
	}
}

func inPart(m *module, pkg, name string) bool {
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			for _, in := range j.Packages {
				if in == pkg && slices.Contains(j.Env, release[0]) && (!j.selects() || strings.Contains(strings.Join(j.Args, " "), name)) {
					return true
				}
			}
		}
	}
	return false
}

// tryOut runs a package p of tests, and returns what that printed and found.
func tryOut(t *testing.T, list flakyList, j job, tests ...string) (string, results, error) {
	t.Helper()
	dir := t.TempDir()
	tool := filepath.Join(dir, "gotestsum")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-modfile=internal/tools/gotestsum/go.mod", "-o", tool, "gotest.tools/gotestsum")
	build.Dir = filepath.Join("..", "..", "..", "..")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	source := "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\n" + strings.Join(tests, "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module p\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p_test.go"), []byte(source), 0o600))
	t.Chdir(dir)
	var out bytes.Buffer
	err = runner{out: &out, errOut: &out, tool: []string{tool}, dir: "reports", flaky: list}.run(t.Context(), "try", beside(j))
	seen, readErr := readResults(filepath.Join("reports", "try", "events.json"))
	require.NoError(t, readErr)
	return out.String(), seen, err
}

func lengths(r results) (all []int) {
	for t, outcomes := range r.outcomes {
		if t.name != "" {
			all = append(all, len(outcomes))
		}
	}
	return all
}
