package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// test names a test without a parent, or, with an empty name, its package.
type test struct{ pkg, name string }

// results are what gotestsum wrote of a run.
type results struct {
	outcomes map[test][]string // "pass", "fail" or "skip" of each attempt
	outputs  map[test]string   // of all attempts, of tests that failed
	cached   map[string]bool   // packages
	skips    []skip
}

type skip struct{ pkg, test, reason string }

var skipLine = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// readResults reads the events of a run, which may have ended before its first.
func readResults(file string) (results, error) {
	r := results{outcomes: map[test][]string{}, outputs: map[test]string{}, cached: map[string]bool{}}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	printed := map[test]string{} // by tests that have not ended, with those below them
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) == nil {
			r.take(e, printed)
		}
	}
	return r, scanner.Err()
}

func (r *results) take(e event, printed map[test]string) {
	root, _, below := strings.Cut(e.Test, "/")
	t, full := test{e.Package, root}, test{e.Package, e.Test}
	switch e.Action {
	case "output":
		printed[full] += e.Output
		if below {
			printed[t] += e.Output
		}
		if e.Test == "" && strings.Contains(e.Output, "(cached)") {
			r.cached[e.Package] = true
		}
	case "pass", "fail", "skip":
		if e.Action == "skip" && e.Test != "" {
			r.skips = append(r.skips, skip{e.Package, e.Test, lastReason(printed[full])})
		}
		if !below {
			r.outcomes[t] = append(r.outcomes[t], e.Action)
			if slices.Contains(r.outcomes[t], "fail") {
				r.outputs[t] += printed[t]
			}
		}
		delete(printed, full)
	}
}

func lastReason(output string) string {
	found := skipLine.FindAllStringSubmatch(output, -1)
	if len(found) == 0 {
		return "(no reason given)"
	}
	return found[len(found)-1][1]
}

// failed returns the tests whose last attempt failed, and the packages that failed without one.
func (r results) failed() (all []test) {
	for t, outcomes := range r.outcomes {
		if outcomes[len(outcomes)-1] == "fail" {
			all = append(all, t)
		}
	}
	all = slices.DeleteFunc(all, func(p test) bool {
		return p.name == "" && slices.ContainsFunc(all, func(t test) bool { return t.pkg == p.pkg && t.name != "" })
	})
	return sorted(all)
}

// flaky returns the tests that failed and then passed.
func (r results) flaky() (all []test) {
	for t, outcomes := range r.outcomes {
		if t.name != "" && slices.Contains(outcomes, "fail") && outcomes[len(outcomes)-1] == "pass" {
			all = append(all, t)
		}
	}
	return sorted(all)
}

// again returns the command that runs a test by itself.
func (t test) again() string {
	pkg, part, _ := strings.Cut(short(t.pkg), " ")
	suite := ""
	if part != "" {
		suite = release[0] + " "
	}
	return fmt.Sprintf("%smake t PKG=./%s RUN='^%s$'", suite, pkg, t.name)
}

func sorted(tests []test) []test {
	slices.SortFunc(tests, func(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	return tests
}

//go:embed skips.txt
var skipsFile string

// printSkips prints the skipped tests by reason, and returns how many are not in skips.txt.
func printSkips(out io.Writer, skips []skip, p plan) (unexpected int) {
	isShort := slices.ContainsFunc(p.jobs(), job.isShort) // which leaves tests out by design
	count := map[string]int{}
	for _, s := range skips {
		if isShort || expected(s) {
			count[s.reason]++
			continue
		}
		unexpected++
		fmt.Fprintf(out, "skipped, and not in skips.txt: %s %s: %s\n", short(s.pkg), s.test, s.reason)
	}
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(out, "skipped %d: %s\n", count[reason], reason)
	}
	return unexpected
}

// expected reports whether a line "PACKAGE TEST REASON" of skips.txt allows a skip. Package and
// test are patterns of path.Match, or * for all; the reason is a regular expression.
func expected(s skip) bool {
	pkg, _, _ := strings.Cut(short(s.pkg), " ")
	for line := range strings.Lines(skipsFile) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "#" {
			continue
		}
		if matches(fields[0], pkg) && matches(fields[1], s.test) && regexp.MustCompile(strings.Join(fields[2:], " ")).MatchString(s.reason) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "*" || err == nil && ok
}
