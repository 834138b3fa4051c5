package main

import (
	"os"
	"path/filepath"
	"regexp"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzJobs returns one job for each fuzz target: `go test -fuzz` takes one at a time. A target uses
// one worker, because several jobs run at a time. They also run beside other parts, which they must
// not slow down.
func fuzzJobs(m *module) (jobs []job) {
	for _, pkg := range m.tested() {
		for _, target := range fuzzTargets(filepath.Join(m.root, m.dirs[pkg])) {
			jobs = append(jobs, job{
				name: short(pkg) + " " + target, packages: []string{pkg}, nice: 19,
				args: []string{"-run", "^$", "-fuzz", "^" + target + "$", "-fuzztime", fuzzTime, "-parallel", "1"},
			})
		}
	}
	return jobs
}

// fuzzTargets returns the names of the fuzz targets in a folder.
func fuzzTargets(dir string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // compiling it will fail with the reason
		}
		for _, found := range fuzzTarget.FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}
