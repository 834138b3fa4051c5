package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// inARow is in how many runs in a row a test is flaky until the run fails.
const inARow = 3

// flakyList is a file of the tests that failed and passed when they were repeated. It is in the
// user's cache, so that the runs of all checkouts on a machine share it.
type flakyList struct{ file string }

// flake is what the list has of a test.
type flake struct {
	Runs  int       // in a row, up to the last one
	Total int       // since the list began
	Last  time.Time // when
}

func newFlakyList() (flakyList, error) {
	cache, err := os.UserCacheDir()
	return flakyList{filepath.Join(cache, "pipeops-test", "flaky.json")}, err
}

// read returns the list by "PACKAGE TEST". A missing file is an empty list.
func (l flakyList) read() (map[string]flake, error) {
	known := map[string]flake{}
	text, err := os.ReadFile(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("%s: %w; delete it to begin a new list", l.file, err)
	}
	return known, nil
}

// print lists the tests that earlier runs found flaky.
func (l flakyList) print(out io.Writer) {
	known, err := l.read()
	if err != nil {
		fmt.Fprintln(out, "suite:", err)
		return
	}
	if len(known) > 0 {
		fmt.Fprintf(out, "flaky in earlier runs (%s):\n", l.file)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		f := known[name]
		fmt.Fprintf(out, "  %s: %d runs, %d in a row, last %s\n", name, f.Total, f.Runs, f.Last.Format(time.DateOnly))
	}
}

// record adds the flaky tests of a run, prints them with the output of each attempt, and ends the
// row of those that passed at once. It returns an error for a test that was flaky too often in a
// row.
func (l flakyList) record(out io.Writer, seen results) error {
	known, err := l.read()
	if err != nil {
		return err
	}
	for t, outcomes := range seen.outcomes {
		if f, ok := known[t.String()]; ok && !seen.cached[t.pkg] && len(outcomes) == 1 {
			f.Runs = 0
			known[t.String()] = f
		}
	}
	var often []string
	for _, t := range seen.flaky() {
		f := known[t.String()]
		known[t.String()] = flake{f.Runs + 1, f.Total + 1, time.Now().UTC()}
		fmt.Fprintf(out, "\nFLAKY %s: %s\n%s", t, strings.Join(seen.outcomes[t], ", "), seen.outputs[t])
		if f.Runs+1 >= inARow {
			often = append(often, t.String())
		}
	}
	if n := len(seen.flaky()); n > 0 {
		fmt.Fprintf(out, "\n%d flaky tests passed when they were repeated; each is a bug: %s\n", n, l.file)
	}
	text, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(l.file), 0o700), os.WriteFile(l.file, text, 0o600)); err != nil {
		return err
	}
	if len(often) > 0 {
		return fmt.Errorf("flaky %d runs in a row: %s", inARow, strings.Join(often, ", "))
	}
	return nil
}

func (t test) String() string { return short(t.pkg) + " " + t.name }
