package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// slowestShown is how many of the slowest tests the summary names.
const slowestShown = 20

// summary prints the slowest tests, exceeded budgets, skipped tests, and the commands to rerun what
// failed. Its error names what failed.
func (r *report) summary() error {
	r.slowest()
	if r.budgeted {
		r.budgets()
	}
	unexpected := r.skips()
	r.empty()
	if len(r.failed) > 0 {
		r.again()
		return fmt.Errorf("%d tests or packages failed", len(r.failed))
	}
	if unexpected > 0 && r.strict {
		return fmt.Errorf("%d tests were skipped that are not in skips.txt", unexpected)
	}
	if r.done == 0 {
		return errors.New("no package was tested")
	}
	r.say("\n%d tests in %d packages passed (%d of them cached), %d skipped, %s",
		r.tests-len(r.skipped), r.done, r.cached, len(r.skipped), round(time.Since(r.start)))
	return nil
}

func (r *report) slowest() {
	slices.SortStableFunc(r.times, func(a, b timing) int { return cmp.Compare(b.took, a.took) })
	shown := r.times[:min(slowestShown, len(r.times))]
	shown = slices.DeleteFunc(slices.Clone(shown), func(t timing) bool { return t.took < worthShowing })
	if len(shown) == 0 {
		return
	}
	r.say("\nslowest tests:")
	for _, t := range shown {
		r.say("  %6.1fs  %s %s", t.took.Seconds(), short(t.pkg), t.test)
	}
}

// budgets names the packages that took longer than budgets.txt allows.
func (r *report) budgets() {
	over := slices.DeleteFunc(slices.Clone(r.packages), func(t timing) bool { return t.took <= r.known.budget(t.pkg) })
	if len(over) == 0 {
		return
	}
	slices.SortFunc(over, func(a, b timing) int { return cmp.Compare(b.took, a.took) })
	r.say("\nover their time budget (budgets.txt):")
	for _, t := range over {
		r.say("  %6.1fs of %s  %s", t.took.Seconds(), r.known.budget(t.pkg), short(t.pkg))
	}
}

// unexpected reports whether a job skipped a test that is not in skips.txt.
func (r *report) unexpected(j *job) bool {
	return slices.ContainsFunc(r.skipped, func(s skip) bool { return s.job == j && !r.known.expects(s) })
}

// skips prints the skipped tests by reason, and returns how many were not expected.
func (r *report) skips() (unexpected int) {
	if len(r.skipped) == 0 {
		return 0
	}
	slices.SortStableFunc(r.skipped, func(a, b skip) int {
		return cmp.Or(strings.Compare(a.reason, b.reason), strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
	})
	r.say("\nskipped:")
	for i, s := range r.skipped {
		if i == 0 || s.reason != r.skipped[i-1].reason {
			r.say("  %s", s.reason)
		}
		note := ""
		if !r.known.expects(s) {
			unexpected++
			note = "  NOT EXPECTED (skips.txt)"
		}
		r.say("    %s %s%s", short(s.pkg), s.test, note)
	}
	return unexpected
}

// empty fails the jobs whose pattern matched no test: their packages passed, and showed nothing.
// What an interrupt kept from running is none of these.
func (r *report) empty() {
	for _, j := range r.jobs {
		if j.selects() && r.passed[j] > 0 && r.ran[j] == 0 && !r.hasFailed(j) {
			r.say("FAIL  %s%s: its pattern matches no test: %s", j.label(), j.name, strings.Join(j.args, " "))
			r.failed = append(r.failed, failure{job: j, pkg: strings.Join(j.packages, " ")})
		}
	}
}

func (r *report) hasFailed(j *job) bool {
	return slices.ContainsFunc(r.failed, func(f failure) bool { return f.job == j })
}

// again prints how to run what failed once more.
func (r *report) again() {
	r.say("\nto run again what failed:")
	for _, f := range r.failed {
		if !slices.ContainsFunc(r.failed, func(o failure) bool { return isPartOf(o, f) }) {
			r.say("  %s", f.job.again(f.pkg, f.test))
		}
	}
}

// isPartOf reports whether failure o is a test, or a part of a test, that f is made of.
func isPartOf(o, f failure) bool {
	if o.job != f.job || o.pkg != f.pkg || o.test == f.test {
		return false
	}
	return f.test == "" || strings.HasPrefix(o.test, f.test+"/")
}
