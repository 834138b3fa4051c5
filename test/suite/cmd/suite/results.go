package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// test names a test without a parent, or, with an empty name, its package.
type test struct{ pkg, name string }

func (t test) String() string { return short(t.pkg) + " " + t.name }

// again returns the command that runs a test by itself.
func (t test) again() string {
	pkg, part, _ := strings.Cut(short(t.pkg), " ")
	if part != "" {
		part = release[0] + " "
	}
	if isBelow(pkg, provider) {
		return fmt.Sprintf("cd %s && %sgo test -count=1 -run '^%s$' .%s", provider, part, t.name, strings.TrimPrefix(pkg, provider))
	}
	return fmt.Sprintf("%smake t PKG=./%s RUN='^%s$'", part, pkg, t.name)
}

// results are what gotestsum wrote of a run.
type results struct {
	outcomes map[test][]string // "pass", "fail" or "skip" of each attempt
	outputs  map[test]string   // of all attempts, with those of the tests below, unless all passed
	skips    map[string][]test // by reason, tests below others included
}

var skipLine = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// readResults reads the events of a run, which may have ended before its first.
func readResults(file string) (results, error) {
	r := results{map[test][]string{}, map[test]string{}, map[string][]test{}}
	text, err := os.ReadFile(file)
	for line := range bytes.Lines(text) {
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.take(e)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	return r, err
}

func (r *results) take(e event) {
	root, _, below := strings.Cut(e.Test, "/")
	t, full := test{e.Package, root}, test{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.outputs[full] += e.Output
		if below {
			r.outputs[t] += e.Output
		}
	case "pass", "fail", "skip":
		if e.Action == "skip" && e.Test != "" {
			found := append([][]string{{"", "(no reason given)"}}, skipLine.FindAllStringSubmatch(r.outputs[full], -1)...)
			reason := found[len(found)-1][1]
			r.skips[reason] = append(r.skips[reason], full)
		}
		if !below {
			r.outcomes[t] = append(r.outcomes[t], e.Action)
		}
		if !slices.Contains(r.outcomes[t], "fail") {
			delete(r.outputs, full)
		}
	}
}

// failedThen returns the tests that failed and whose last outcome is the given one, and packages
// that failed without one.
func (r results) failedThen(last string) []test {
	all := slices.SortedFunc(maps.Keys(r.outcomes), func(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	all = slices.DeleteFunc(all, func(t test) bool {
		o := r.outcomes[t]
		return !slices.Contains(o, "fail") || o[len(o)-1] != last
	})
	return slices.DeleteFunc(slices.Clone(all), func(p test) bool {
		return p.name == "" && (last == "pass" || slices.ContainsFunc(all, func(t test) bool { return t.pkg == p.pkg && t.name != "" }))
	})
}

//go:embed skips.txt
var skipsFile string

// printSkips prints the skipped tests by reason, and returns how many have one that is not in
// skips.txt.
func (r results) printSkips(out io.Writer, all bool) (unexpected int) {
	expected := regexp.MustCompile("^(" + strings.Join(strings.Split(strings.TrimSpace(skipsFile), "\n"), "|") + ")")
	for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
		tests := r.skips[reason]
		if all || expected.MatchString(reason) {
			fmt.Fprintf(out, "skipped %d: %s\n", len(tests), reason)
			continue
		}
		unexpected += len(tests)
		fmt.Fprintf(out, "skipped, and not in skips.txt: %v: %s\n", tests, reason)
	}
	return unexpected
}

// flakyList is a file of the tests that failed and passed when they were repeated. It is in the
// user's cache, so that the runs of all checkouts on a machine share it.
type flakyList string

// read returns in how many runs in a row, up to the last one, a "PACKAGE TEST" was flaky. A missing
// file is an empty list.
func (l flakyList) read() (map[string]int, error) {
	known := map[string]int{}
	text, err := os.ReadFile(string(l))
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w; delete it to begin a new list", l, err)
	}
	return known, nil
}

// print lists the tests that earlier runs found flaky.
func (l flakyList) print(out io.Writer) {
	known, _ := l.read() // record returns the error
	for _, name := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(out, "flaky in earlier runs: %s: in the last %d\n", name, known[name])
	}
}

// record adds the flaky tests of a run, prints them with the output of each attempt, and ends the
// row of those that passed at once. It returns an error for a test that was flaky in three runs in
// a row.
func (l flakyList) record(out io.Writer, seen results) error {
	known, err := l.read()
	if err != nil {
		return err
	}
	for t, outcomes := range seen.outcomes {
		if _, ok := known[t.String()]; ok && len(outcomes) == 1 {
			known[t.String()] = 0
		}
	}
	var often error
	for _, t := range seen.failedThen("pass") {
		name := t.String()
		known[name]++
		fmt.Fprintf(out, "\nFLAKY %s: %s\n%sIt passed when it was repeated. It is a bug: %s\n", name, strings.Join(seen.outcomes[t], ", "), seen.outputs[t], l)
		if known[name] > 2 {
			often = errors.Join(often, fmt.Errorf("flaky 3 runs in a row: %s", name))
		}
	}
	text, err := json.MarshalIndent(known, "", "  ")
	return errors.Join(err, os.MkdirAll(filepath.Dir(string(l)), 0o700), os.WriteFile(string(l), text, 0o600), often)
}
