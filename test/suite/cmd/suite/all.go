package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// runAll runs the whole release suite. A part that fails does not keep the others from running.
func runAll(ctx context.Context, out io.Writer, m *module) error {
	start := time.Now()
	failed := failures{}
	failed.add("test", runJobs(ctx, out, "what no part runs whole", m.beforeParts()))
	failed.add("parts", runNamed(ctx, out, m, parts))
	fmt.Fprintf(out, "\nrelease suite: %s\nleft out, because it is not possible or not bounded here:\n", round(time.Since(start)))
	for _, line := range neverRun {
		fmt.Fprintln(out, "  "+line)
	}
	return failed.err()
}

// beforeParts returns the jobs of `make test` without the packages whose tests a part runs, too:
// nothing runs twice.
func (m *module) beforeParts() (jobs []job) {
	repeated := m.runWhole()
	for _, j := range testJobs(m) {
		j.packages = slices.DeleteFunc(j.packages, func(pkg string) bool { return repeated[pkg] })
		if len(j.packages) > 0 {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// runWhole returns the packages of which a part runs every test that `make test` runs.
func (m *module) runWhole() map[string]bool {
	whole := map[string]bool{}
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			for _, pkg := range j.packages {
				whole[pkg] = whole[pkg] || j.runsWhole()
			}
		}
	}
	return whole
}

// runsWhole reports whether a job runs all tests of its packages, with the database of `make test`.
func (j job) runsWhole() bool {
	otherDatabase := slices.ContainsFunc(j.env, func(v string) bool { return strings.HasPrefix(v, databaseVariable+"=") })
	return !otherDatabase && !j.selects() && !j.isShort()
}
