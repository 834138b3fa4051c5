package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
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
	root   = "../../../.."
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
		runs  int // of a test that failed each time
	}{
		"passes":         {tests: []string{passes}, says: "DONE 1 tests in"},
		"by chance":      {tests: []string{passes, everyOther}, says: "FLAKY p TestChance_FailsEveryOtherTime: fail, pass"},
		"always":         {tests: []string{passes, always}, fails: true, says: "make t PKG=./p RUN='^TestBad_Fails$'", runs: 3},
		"beside another": {tests: []string{everyOther, always}, fails: true, says: "failed always", runs: 3},
		"race":           {tests: []string{races}, race: true, fails: true, says: "data race", runs: 1},
		"panic":          {tests: []string{panics}, fails: true, says: "suspected panic", runs: 1},
		"leak":           {tests: []string{leaks}, fails: true, says: "not repeated: p TestLeak_IsFinal: goroutines leaked", runs: 1},
		"outside":        {tests: []string{outside, passes}, fails: true, says: "not repeated: p failed outside of its tests"},
		"does not build": {tests: []string{broken}, fails: true, says: "undefined: undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			out, seen, err := tryOut(t, job{Packages: []string{"p"}, Race: c.race}, c.tests...)
			require.Equal(t, c.fails, err != nil, "%v\n%s", err, out)
			require.Contains(t, out, c.says)
			if c.runs > 0 {
				require.Contains(t, slices.Collect(maps.Values(seen.outcomes)), slices.Repeat([]string{"fail"}, c.runs), out)
			}
		})
	}
}

func TestFlaky_FailsThirdRunInARow(t *testing.T) {
	list := flakyList(filepath.Join(t.TempDir(), "flaky.json"))
	for _, c := range []struct{ outcomes, list, err string }{
		{"fail pass", "", ""}, {"fail fail pass", "in the last 1", ""}, {"pass", "in the last 2", ""}, {"fail pass", "in the last 0", ""},
		{"fail pass", "in the last 1", ""}, {"fail pass", "in the last 2", "flaky 3 runs in a row: p TestChance"},
	} {
		var out bytes.Buffer
		list.print(&out)
		require.Contains(t, out.String(), c.list)
		err := list.record(&out, results{outcomes: map[test][]string{{modulePath + "/p", "TestChance"}: strings.Fields(c.outcomes)}})
		require.Equal(t, c.err, strings.TrimPrefix(fmt.Sprint(err), "<nil>"))
	}
}

func TestParts_RunWhatTestLeavesOut(t *testing.T) {
	t.Chdir(root)
	m, err := loadModule(t.Context())
	require.NoError(t, err)
	all := partJobs(m, parts)
	for _, j := range all {
		require.NotEmpty(t, j.Packages, "part %s: %v", j.Part, j.First)
	}
	for _, pkg := range m.tested {
		for _, name := range longTests(pkg) {
			require.True(t, slices.ContainsFunc(all, func(j job) bool {
				return slices.Contains(j.Packages, pkg) && slices.Contains(j.Env, release[0]) &&
					(!j.selects() || strings.Contains(strings.Join(j.First, " "), name))
			}), "%s %s is in no part", pkg, name)
		}
	}
}

// tryOut runs a package p of tests, and returns what that printed and found.
func tryOut(t *testing.T, j job, tests ...string) (string, results, error) {
	t.Helper()
	modfile, err := filepath.Abs(filepath.Join(root, "internal/tools/gotestsum/go.mod"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	source := "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\n" + strings.Join(tests, "\n")
	require.NoError(t, os.WriteFile("go.mod", []byte("module p\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile("p_test.go", []byte(source), 0o600))
	var out bytes.Buffer
	err = runner{out: &out, modfile: modfile, dir: "reports", flaky: "flaky.json"}.run(t.Context(), []job{j})
	seen, readErr := readResults(filepath.Join("reports", "events.json"))
	require.NoError(t, readErr)
	return out.String(), seen, err
}
