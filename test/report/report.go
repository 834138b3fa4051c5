package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report follows the tests of many packages at once.
type report struct {
	out     io.Writer
	flags   string
	verbose bool // with -v: a line for each test, and what packages say outside of tests
	start   time.Time
	running map[string]time.Time // packages and tests, "package test"
	output  map[string][]string  // of what has not passed yet, by the same key
	builds  map[string][]string  // what the compiler says, by import path
	failed  []failure
	done    int
	tests   int
	lastSay time.Time
}

type failure struct{ pkg, test string }

func newReport(out io.Writer, args []string) *report {
	return &report{
		out: out, flags: flagsOf(args), verbose: slices.Contains(args, "-v"), start: time.Now(), lastSay: time.Now(),
		running: map[string]time.Time{}, output: map[string][]string{}, builds: map[string][]string{},
	}
}

// flagsOf leaves out the packages, which come last.
func flagsOf(args []string) string {
	end := len(args)
	for end > 0 && strings.ContainsAny(args[end-1], "./") && !strings.HasPrefix(args[end-1], "-") {
		end--
	}
	return strings.Join(args[:end], " ")
}

func (r *report) follow(events <-chan event) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			r.take(e)
		case <-tick.C:
			if time.Since(r.lastSay) >= heartbeat {
				r.beat()
			}
		}
	}
}

func key(pkg, test string) string { return strings.TrimSpace(pkg + " " + test) }

func (r *report) take(e event) {
	k := key(e.Package, e.Test)
	switch e.Action {
	case "start", "run", "cont":
		r.running[k] = time.Now()
	case "pause":
		delete(r.running, k)
	case "output":
		if e.Package == "" {
			r.say("%s", strings.TrimRight(e.Output, "\n"))
			return
		}
		if r.verbose && e.Test == "" && e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "ok  \t") {
			r.say("%s", strings.TrimRight(e.Output, "\n"))
			return
		}
		r.output[k] = append(r.output[k], e.Output)
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "pass", "skip", "fail":
		r.end(e, k)
	}
}

func (r *report) end(e event, k string) {
	delete(r.running, k)
	output := r.output[k]
	delete(r.output, k)
	if e.Action == "fail" {
		r.failed = append(r.failed, failure{e.Package, e.Test})
		r.explain(e, output)
	}
	if e.Test != "" {
		r.tests++
		if r.verbose && !strings.Contains(e.Test, "/") {
			r.say("%-5s %s  %.1fs", e.Action, e.Test, e.Elapsed)
		}
		return
	}
	r.done++
	switch {
	case e.Action == "fail":
		r.say("FAIL  %s  %.1fs", e.Package, e.Elapsed)
	case contains(output, "(cached)"):
		r.say("ok    %s  (cached)", e.Package)
	case e.Action == "pass":
		r.say("ok    %s  %.1fs", e.Package, e.Elapsed)
	}
}

// explain shows what a failed test said, at once: others may take long.
func (r *report) explain(e event, output []string) {
	r.say("\n--- %s %s", e.Package, e.Test)
	if e.Test == "" { // what its tests said that never ended: a panic, a timeout
		for _, k := range slices.Sorted(maps.Keys(r.output)) {
			if strings.HasPrefix(k, e.Package+" ") {
				output = append(r.output[k], output...)
				delete(r.output, k)
				delete(r.running, k)
			}
		}
	}
	output = append(r.builds[e.FailedBuild], output...)
	for _, line := range output {
		r.say("%s", strings.TrimRight(line, "\n"))
	}
	r.say("---")
}

func contains(output []string, text string) bool {
	return slices.ContainsFunc(output, func(line string) bool { return strings.Contains(line, text) })
}

// beat tells what has been running for longest, tests rather than packages.
func (r *report) beat() {
	var now []string
	for _, k := range slices.SortedFunc(maps.Keys(r.running), func(a, b string) int {
		return r.running[a].Compare(r.running[b])
	}) {
		if pkg, test, ok := strings.Cut(k, " "); ok && len(now) < 3 && !r.parent(k) {
			now = append(now, fmt.Sprintf("%s %s %s", pkg[strings.LastIndex(pkg, "/")+1:], test, round(time.Since(r.running[k]))))
		}
	}
	if len(now) == 0 {
		now = []string{"compiling, linking or starting"}
	}
	r.say("...   %s, %d packages done: %s", round(time.Since(r.start)), r.done, strings.Join(now, ", "))
}

// parent tells whether a test waits for a part of itself.
func (r *report) parent(k string) bool {
	for other := range r.running {
		if strings.HasPrefix(other, k+"/") {
			return true
		}
	}
	return false
}

// summary says how to run again what failed.
func (r *report) summary() error {
	if len(r.failed) == 0 {
		r.say("%d tests in %d packages passed, %s", r.tests, r.done, round(time.Since(r.start)))
		return nil
	}
	r.say("\nto run again what failed:")
	for _, f := range r.failed {
		if f.test == "" && slices.ContainsFunc(r.failed, func(o failure) bool { return o.pkg == f.pkg && o.test != "" }) {
			continue // its tests are named
		}
		if slices.ContainsFunc(r.failed, func(o failure) bool { return o.pkg == f.pkg && strings.HasPrefix(o.test, f.test+"/") }) && f.test != "" {
			continue // its parts are named
		}
		r.say("  %s", r.again(f))
	}
	return fmt.Errorf("%d tests or packages failed", len(r.failed))
}

func (r *report) again(f failure) string {
	command := "go test " + r.flags
	if strings.Contains(r.flags, "-race") {
		command = "CGO_ENABLED=1 " + command
	}
	if f.test != "" {
		parts := strings.Split(f.test, "/")
		for i := range parts {
			parts[i] = "^" + parts[i] + "$"
		}
		command += " -v -run '" + strings.Join(parts, "/") + "'"
	}
	return strings.TrimSpace(command) + " -count=1 " + f.pkg
}

func (r *report) say(format string, args ...any) {
	r.lastSay = time.Now()
	fmt.Fprintf(r.out, format+"\n", args...)
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
