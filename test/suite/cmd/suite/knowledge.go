package main

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// worthShowing is how long a test takes at least to be among the slowest.
const worthShowing = time.Second

var (
	//go:embed budgets.txt
	budgetsFile string
	//go:embed skips.txt
	skipsFile string
)

// knowledge is what the repository records about its tests: how long a package may take, and which
// tests may be skipped for which reason.
type knowledge struct {
	budgets map[string]time.Duration // by package, without the module's path
	skips   []expectedSkip
	// shortReasons are those of tests that -short leaves out.
	shortReasons []string
}

// expectedSkip allows tests, by a pattern of "package test" (path.Match on each), to be skipped
// for a reason that matches.
type expectedSkip struct {
	pkg, test string
	reason    *regexp.Regexp
}

func loadKnowledge() (k knowledge, err error) {
	if k.budgets, err = parseBudgets(budgetsFile); err != nil {
		return k, fmt.Errorf("budgets.txt: %w", err)
	}
	if k.skips, err = parseSkips(skipsFile); err != nil {
		return k, fmt.Errorf("skips.txt: %w", err)
	}
	return k, nil
}

// parseBudgets reads lines "package duration". The package "default" is for all others.
func parseBudgets(text string) (map[string]time.Duration, error) {
	budgets := map[string]time.Duration{}
	for n, fields := range lines(text) {
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: expected a package and a duration", n)
		}
		budget, err := time.ParseDuration(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		budgets[fields[0]] = budget
	}
	if budgets["default"] == 0 {
		return nil, fmt.Errorf("there is no line for %q", "default")
	}
	return budgets, nil
}

// parseSkips reads lines "package test reason", where the reason is a regular expression.
func parseSkips(text string) (skips []expectedSkip, err error) {
	for n, fields := range lines(text) {
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: expected a package, a test and a reason", n)
		}
		s := expectedSkip{pkg: fields[0], test: fields[1]}
		if s.reason, err = regexp.Compile(strings.Join(fields[2:], " ")); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		skips = append(skips, s)
	}
	return skips, nil
}

// lines yields the fields of each line that is neither empty nor a comment, with its number.
func lines(text string) func(yield func(int, []string) bool) {
	return func(yield func(int, []string) bool) {
		for i, line := range strings.Split(text, "\n") {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if !yield(i+1, strings.Fields(line)) {
				return
			}
		}
	}
}

// budget returns how long a package's tests may take.
func (k knowledge) budget(pkg string) time.Duration {
	if d, ok := k.budgets[short(pkg)]; ok {
		return d
	}
	return k.budgets["default"]
}

// expects reports whether a skip is one of those that the repository allows.
func (k knowledge) expects(s skip) bool {
	if s.job != nil && s.job.isShort() && slices.Contains(k.shortReasons, s.reason) {
		return true
	}
	for _, e := range k.skips {
		if matches(e.pkg, short(s.pkg)) && matches(e.test, s.test) && e.reason.MatchString(s.reason) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "*" || err == nil && ok
}

// skip is a test that was skipped.
type skip struct {
	job               *job
	pkg, test, reason string
}

var skipLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)\n?$`)

// newSkip finds the reason in what the test printed: its last line that names a place.
func newSkip(e event, output []string) skip {
	s := skip{job: e.job, pkg: e.Package, test: e.Test, reason: "(no reason given)"}
	for _, line := range output {
		if found := skipLine.FindStringSubmatch(line); found != nil {
			s.reason = found[1]
		}
	}
	return s
}
