package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// job is one `go test` command. A run consists of stages, one after another. The lanes of a stage
// run side by side, and the jobs of a lane one after another.
type job struct {
	Stage    int
	Lane     string
	Part     string // of the release suite; empty for others
	Race     bool
	Env      []string // NAME=VALUE, and perhaps a command that runs go
	Args     []string // of all attempts
	First    []string // of the first attempt alone
	Packages []string
	Dir      string // of the packages' module; empty for the repository's
}

// release makes the tests run that are only in the release suite.
var release = []string{suite.Environment}

// words returns the command. It ends a package whose tests hang. Vetting is the linters' work.
func (j job) words() []string {
	words := []string{"go", "test"}
	if j.Dir != "" {
		words = append(words, "-C", j.Dir) // the first flag
	}
	words = append(words, "-json", "-trimpath", "-timeout=40m", "-vet=off")
	if j.Race {
		words = append(append([]string{"CGO_ENABLED=1"}, words...), suite.RaceFlags...) // it needs cgo
	}
	return slices.Concat([]string{"env"}, j.Env, words, j.Args, j.First, j.Packages)
}

// selects reports whether a pattern decides which tests run.
func (j job) selects() bool { return slices.Contains(j.First, "-run") }

// label returns a package's name in the report.
func (j job) label(pkg string) string {
	if j.Part != "" && pkg != "" {
		pkg += " [" + j.Part + "]"
	}
	return pkg
}

// only returns the job that repeats one test, of the package with a label.
func only(jobs []job, run, label string) []job {
	for _, j := range jobs {
		pkg := strings.TrimSuffix(label, " ["+j.Part+"]")
		if j.label(pkg) == label && slices.Contains(j.Packages, pkg) {
			j.Packages, j.First = []string{pkg}, []string{"-count=1", run}
			return []job{j}
		}
	}
	return nil
}

// testJobs are what a change must pass. Most tests on clusters and machines wait more than they
// compute, so two such packages run beside two others.
func testJobs(m *module) []job {
	return []job{
		{Lane: "clusters", First: []string{"-p", "2"}, Packages: m.of(clusters)},
		{Lane: "others", First: []string{"-p", "2"}, Packages: m.of(own, programs)},
		{Lane: "others", Dir: provider, Packages: m.below(provider)},
	}
}

// allJobs are what a release must pass: first the packages whose tests no part runs whole, then the
// parts.
func allJobs(m *module) []job {
	all, later := testJobs(m), partJobs(m, parts)
	for i := range all {
		all[i].Packages = slices.DeleteFunc(all[i].Packages, func(pkg string) bool {
			return slices.ContainsFunc(later, func(j job) bool {
				return j.Part != "databases" && !j.selects() && slices.Contains(j.Packages, pkg)
			})
		})
	}
	return append(slices.DeleteFunc(all, func(j job) bool { return len(j.Packages) == 0 }), later...)
}

// partJobs returns the jobs of parts, those of the last lane alone at the end.
func partJobs(m *module, chosen []part) (all []job) {
	for _, p := range chosen {
		for _, j := range p.jobs(m) {
			j.Part, j.Lane, j.Stage = p.name, cmp.Or(j.Lane, p.lane), 1
			if p.lane == "alone" {
				j.Stage = 2
			}
			all = append(all, j)
		}
	}
	return all
}
