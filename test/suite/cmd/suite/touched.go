package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// productFiles are inputs of tests that run the product's programs, beside the programs' packages.
var productFiles = []string{"scripts", "deployments", "Dockerfile"}

// buildFiles are inputs of every test.
var buildFiles = []string{"go.mod", "go.sum"}

// runTouched runs the parts whose inputs a change touched, as far as they fit into the limit.
func runTouched(ctx context.Context, out io.Writer, m *module, base string, limit time.Duration) error {
	c, err := findChange(ctx, base)
	if err != nil {
		return err
	}
	files, err := trackedFiles(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "== parts of the release suite that changed %s (%d files)\n", c.since, len(c.files))
	var chosen []piece
	for _, p := range nearestFirst(m, c.last) {
		jobs := touchedJobs(m, p, c.files)
		if len(jobs) == 0 {
			fmt.Fprintf(out, "%-10s not touched\n", p.name)
			continue
		}
		next := m.take(out, p, jobs, files)
		if with := duration(append(slices.Clone(chosen), next)); len(next.jobs) > 0 && with > limit {
			fmt.Fprintf(out, "%-10s LEFT OUT: about %s together with the parts before, and the limit is %s; run `make test-part PART=%s`\n",
				p.name, round(with), limit, p.name)
			continue
		}
		chosen = append(chosen, next)
	}
	return runPieces(ctx, out, chosen)
}

// nearestFirst sorts the parts: first those with changes in their own packages, then those with
// changes in what these use.
func nearestFirst(m *module, files []string) []part {
	distance := func(p part) int {
		far := 2
		for _, j := range p.jobs(m) {
			own := inputs{packages: map[string]bool{}, all: m.folders(), files: p.files}
			for _, pkg := range j.packages {
				own.packages[m.dirs[pkg]] = true
			}
			if slices.ContainsFunc(files, own.has) {
				return 0
			}
			if slices.ContainsFunc(files, m.inputs(p, j).has) {
				far = 1
			}
		}
		return far
	}
	far := map[string]int{}
	for _, p := range parts {
		far[p.name] = distance(p)
	}
	return slices.SortedStableFunc(slices.Values(parts), func(a, b part) int { return cmp.Compare(far[a.name], far[b.name]) })
}

// touchedJobs returns the jobs of a part whose inputs are among the changed files.
func touchedJobs(m *module, p part, files []string) (jobs []job) {
	for _, j := range p.jobs(m) {
		in := m.inputs(p, j)
		if slices.ContainsFunc(files, in.has) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// inputs are what the result of a job depends on.
type inputs struct {
	packages map[string]bool // folders of packages
	all      map[string]bool // folders of all packages of the module
	files    []string        // files, and folders with all that is below
}

func (m *module) inputs(p part, j job) inputs {
	in := inputs{files: buildFiles, all: m.folders()}
	pkgs := j.packages
	in.files = slices.Concat(in.files, p.files)
	if p.product {
		in.files = slices.Concat(in.files, productFiles)
		for _, program := range []string{"agent", "controlplane", "runner"} {
			pkgs = append(slices.Clone(pkgs), modulePath+"/cmd/"+program)
		}
	}
	in.packages = m.closure(pkgs...)
	return in
}

// has reports whether a file is an input. A file in a folder that is no package, such as testdata,
// belongs to the nearest package above it.
func (in inputs) has(file string) bool {
	for _, f := range in.files {
		if file == f || strings.HasPrefix(file, f+"/") {
			return true
		}
	}
	dir := path.Dir(file)
	for !in.all[dir] && dir != "." {
		dir = path.Dir(dir)
	}
	return in.packages[dir]
}
