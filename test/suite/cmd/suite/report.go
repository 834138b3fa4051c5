package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// heartbeat is how long the report stays silent before it names what runs.
const heartbeat = 15 * time.Second

// report follows the tests of many packages, and of several `go test` commands, at once.
type report struct {
	out    io.Writer
	known  knowledge
	strict bool // a skip that is not expected is a failure
	// budgeted is for suites that run a package's tests as budgets.txt means them.
	budgeted bool
	start    time.Time
	lastSay  time.Time

	running map[key]time.Time   // packages and tests
	output  map[key][]string    // of what has not passed yet
	builds  map[string][]string // what the compiler prints, by import path

	failed   []failure
	skipped  []skip
	times    []timing // of tests without a parent
	packages []timing
	done     int
	cached   int
	tests    int
	jobs     []*job       // that have been started
	ran      map[*job]int // tests of it that have ended
	passed   map[*job]int // packages of it that have
}

// key names a package or a test. The same one may run in two jobs at a time.
type key struct {
	job       *job
	pkg, test string
}

func (e event) key() key { return key{e.job, e.Package, e.Test} }

type failure struct {
	job       *job
	pkg, test string
}

type timing struct {
	pkg, test string
	took      time.Duration
}

func newReport(out io.Writer, known knowledge) *report {
	return &report{
		out: out, known: known, start: time.Now(), lastSay: time.Now(),
		running: map[key]time.Time{}, output: map[key][]string{}, builds: map[string][]string{},
		ran: map[*job]int{}, passed: map[*job]int{},
	}
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

func (r *report) take(e event) {
	if e.call != nil {
		e.call()
		return
	}
	k := e.key()
	switch e.Action {
	case "start", "run", "cont":
		r.running[k] = time.Now()
	case "pause":
		delete(r.running, k)
	case "output":
		r.print(e, k)
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "pass", "skip", "fail":
		r.end(e, k)
	}
}

// print shows at once what belongs to no package, and keeps the rest until its test has ended.
func (r *report) print(e event, k key) {
	outside := e.Test == "" && e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "ok  \t")
	if e.Package == "" || e.job.verbose() && outside {
		r.say("%s%s", e.job.label(), strings.TrimRight(e.Output, "\n"))
		return
	}
	r.output[k] = append(r.output[k], e.Output)
}

func (r *report) end(e event, k key) {
	delete(r.running, k)
	output := r.output[k]
	delete(r.output, k)
	if e.Action == "fail" {
		r.failed = append(r.failed, failure{e.job, e.Package, e.Test})
		r.explain(e, output)
	}
	if e.Test == "" {
		r.endPackage(e, output)
		return
	}
	r.tests++
	r.ran[e.job]++
	if e.Action == "skip" {
		r.skipped = append(r.skipped, newSkip(e, output))
	}
	if !strings.Contains(e.Test, "/") {
		r.times = append(r.times, timing{e.Package, e.Test, seconds(e.Elapsed)})
		if e.job.verbose() {
			r.say("%-5s %s%s  %.1fs", e.Action, e.job.label(), e.Test, e.Elapsed)
		}
	}
}

func (r *report) endPackage(e event, output []string) {
	r.done++
	if e.Action == "pass" {
		r.passed[e.job]++
	}
	switch {
	case e.Action == "fail":
		r.say("FAIL  %s%s  %.1fs", e.job.label(), e.Package, e.Elapsed)
	case contains(output, "(cached)"):
		r.cached++
		r.times = slices.DeleteFunc(r.times, func(t timing) bool { return t.pkg == e.Package })
		r.say("ok    %s%s  (cached)", e.job.label(), e.Package)
	case e.Action == "pass":
		r.packages = append(r.packages, timing{pkg: e.Package, took: seconds(e.Elapsed)})
		r.say("ok    %s%s  %.1fs", e.job.label(), e.Package, e.Elapsed)
	}
}

// explain shows what a failed test printed, at once: others may take long.
func (r *report) explain(e event, output []string) {
	r.say("\n--- %s%s %s", e.job.label(), e.Package, e.Test)
	if e.Test == "" { // what its tests printed that never ended: a panic, a timeout
		for _, k := range slices.SortedFunc(maps.Keys(r.output), byTest) {
			if k.job == e.job && k.pkg == e.Package {
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

// beat names what has been running for longest, tests rather than packages.
func (r *report) beat() {
	var now []string
	for _, k := range slices.SortedFunc(maps.Keys(r.running), func(a, b key) int {
		return r.running[a].Compare(r.running[b])
	}) {
		if k.test != "" && len(now) < 4 && !r.parent(k) {
			now = append(now, fmt.Sprintf("%s%s %s %s", k.job.label(), lastElement(k.pkg), k.test, round(time.Since(r.running[k]))))
		}
	}
	if len(now) == 0 {
		now = []string{"compiling, linking or starting"}
	}
	r.say("...   %s, %d packages done: %s", round(time.Since(r.start)), r.done, strings.Join(now, ", "))
}

// parent reports whether a test waits for a part of itself.
func (r *report) parent(k key) bool {
	for other := range r.running {
		if other.job == k.job && other.pkg == k.pkg && strings.HasPrefix(other.test, k.test+"/") {
			return true
		}
	}
	return false
}

func byTest(a, b key) int { return strings.Compare(a.test, b.test) }

// label distinguishes the parts of the release suite that run side by side.
func (j *job) label() string {
	if j == nil || j.part == "" {
		return ""
	}
	return "[" + j.part + "] "
}

func (r *report) say(format string, args ...any) {
	r.lastSay = time.Now()
	fmt.Fprintf(r.out, format+"\n", args...)
}

func contains(output []string, text string) bool {
	return slices.ContainsFunc(output, func(line string) bool { return strings.Contains(line, text) })
}

func lastElement(pkg string) string { return pkg[strings.LastIndex(pkg, "/")+1:] }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
