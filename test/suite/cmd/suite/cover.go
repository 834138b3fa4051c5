package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// coverEnv is where programs that were built with -cover leave which of their lines ran (go help
// build). Where it is set, test/programs builds the product's programs so.
const coverEnv = "GOCOVERDIR"

// runCover runs what `make test` runs, and the tests that it leaves out of the packages which need
// no more than it does. It prints how many lines of the production code ran: in the tests' own
// processes, and in the programs that they started.
func runCover(ctx context.Context, out io.Writer, m *module) error {
	dir := filepath.Join(m.root, "bin", "cover")
	tests, programs := filepath.Join(dir, "tests"), filepath.Join(dir, "programs")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, d := range []string{tests, programs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	// Pods, and services with users of their own, write here as well.
	if err := os.Chmod(programs, 0o777|os.ModeSticky); err != nil {
		return err
	}
	failed := runJobs(ctx, out, "cover", coverJobs(m, tests, programs))
	profile := filepath.Join(dir, "profile.txt")
	merge := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+tests+","+programs, "-o="+profile)
	if text, err := merge.CombinedOutput(); err != nil {
		return errors.Join(failed, fmt.Errorf("go tool covdata: %w: %s", err, text))
	}
	c, err := readProfile(profile)
	if err != nil {
		return errors.Join(failed, err)
	}
	total := c.print(out)
	fmt.Fprintf(out, "\nline by line: go tool cover -html=%s\n", profile)
	if failed != nil {
		return failed // what did not run whole has no coverage to compare
	}
	return compare(out, baselineFile, total)
}

//go:embed coverage.txt
var baselineFile string

// tolerance is how many percent the coverage may be lower: which lines run depends on timing, a
// little.
const tolerance = 0.1

// compare holds the line coverage against the one that coverage.txt keeps.
func compare(out io.Writer, file string, total float64) error {
	kept, err := baseline(file)
	switch {
	case err != nil:
		return fmt.Errorf("coverage.txt: %w", err)
	case kept == 0:
		fmt.Fprintf(out, "nothing to compare with: write %.1f%% into test/suite/cmd/suite/coverage.txt\n", total)
	case total < kept-tolerance:
		return fmt.Errorf("line coverage fell from %.1f%% to %.1f%%: test what is new, or say in coverage.txt why it is lower", kept, total)
	case total > kept+tolerance:
		fmt.Fprintf(out, "line coverage rose from %.1f%%: write %.1f%% into test/suite/cmd/suite/coverage.txt\n", kept, total)
	}
	return nil
}

// baseline returns the number in coverage.txt, or 0 if there is none.
func baseline(file string) (kept float64, err error) {
	for n, fields := range lines(file) {
		if kept, err = strconv.ParseFloat(strings.TrimSuffix(strings.Join(fields, " "), "%"), 64); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return kept, nil
}

// coverJobs returns the jobs of testJobs with the coverage of what they run. Which tests `make
// test` leaves out changes with what they cost, and must not change the coverage: so the product's
// packages and the journeys run all of their tests. What else the release suite has needs machines,
// or hours.
func coverJobs(m *module, tests, programs string) (jobs []job) {
	for _, j := range testJobs(m) {
		if j.dir != "" {
			continue // no production code
		}
		j.args = append(j.args, "-cover", "-coverpkg="+modulePath+"/...")
		j.env = append(j.env, coverEnv+"="+programs)
		j.last = []string{"-args", "-test.gocoverdir=" + tests}
		whole, others := j, j
		whole.name += ", all of their tests"
		whole.env = append(slices.Clone(j.env), release...)
		whole.packages, others.packages = m.coveredWhole(j.packages)
		for _, j := range []job{whole, others} {
			if len(j.packages) > 0 {
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// coveredWhole tells packages of which `make cover` runs all tests from those of which it runs what
// `make test` does.
func (m *module) coveredWhole(pkgs []string) (whole, others []string) {
	for _, pkg := range pkgs {
		dir := m.dirs[pkg]
		if !strings.HasPrefix(dir, "test/") || dir == "test/e2e" || dir == "test/demo" || dir == "test/selfupdate" || dir == "test/chart" {
			whole = append(whole, pkg)
			continue
		}
		others = append(others, pkg)
	}
	return whole, others
}

// coverage is, by package, which lines of its files have statements, and whether they ran.
type coverage map[string]map[string]bool // package, "file:line"

// notShipped are folders whose code is no part of the product.
var notShipped = regexp.MustCompile(`^(test|scripts|docs|internal/tools)(/|$)`)

// block is one line of a profile: file:line.column,line.column statements count.
var block = regexp.MustCompile(`^(.+):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

func readProfile(file string) (coverage, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	c := coverage{}
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		found := block.FindStringSubmatch(scanner.Text())
		if found == nil {
			continue // "mode: set"
		}
		c.add(short(found[1]), number(found[2]), number(found[3]), found[4] != "0")
	}
	if len(c) == 0 && scanner.Err() == nil {
		return nil, fmt.Errorf("%s: no coverage in it", file)
	}
	return c, scanner.Err()
}

// add takes the lines of a block. A line that is in several blocks ran when one of them did.
func (c coverage) add(file string, from, to int, ran bool) {
	pkg := path.Dir(file)
	if notShipped.MatchString(pkg) || strings.HasPrefix(path.Base(file), "zz_generated") {
		return
	}
	if c[pkg] == nil {
		c[pkg] = map[string]bool{}
	}
	for line := from; line <= to; line++ {
		at := file + ":" + strconv.Itoa(line)
		c[pkg][at] = c[pkg][at] || ran
	}
}

// print prints each package's share, the lowest first, and the total, which it returns.
func (c coverage) print(out io.Writer) (total float64) {
	share := func(pkg string) float64 { return percent(count(c[pkg])) }
	fmt.Fprintln(out, "\nlines of production code that ran:")
	ran, all := 0, 0
	for _, pkg := range slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(share(a), share(b)) }) {
		r, n := count(c[pkg])
		ran, all = ran+r, all+n
		fmt.Fprintf(out, "  %5.1f%%  %5d lines  %s\n", share(pkg), n, pkg)
	}
	total = percent(ran, all)
	fmt.Fprintf(out, "line coverage of production code: %.1f%% of %d lines\n", total, all)
	return total
}

func count(lines map[string]bool) (ran, all int) {
	for _, did := range lines {
		if did {
			ran++
		}
	}
	return ran, len(lines)
}

func percent(ran, all int) float64 { return 100 * float64(ran) / float64(max(1, all)) }

// number reads digits that a regular expression has found.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
