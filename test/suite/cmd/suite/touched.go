package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// session is how far back a change goes where no base is named and there is no branch to compare.
const session = "6 hours ago"

// productFiles are inputs of tests that run the product's programs, beside the programs' packages.
var productFiles = []string{"scripts", "deployments", "Dockerfile"}

// buildFiles are inputs of every test.
var buildFiles = []string{"go.mod", "go.sum"}

// runTouched runs the parts whose inputs a change touched, as far as they fit into the limit.
func runTouched(ctx context.Context, out io.Writer, m *module, base string, limit time.Duration) error {
	base, files, err := change(ctx, base)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "== parts of the release suite that the change since %.12s touched (%d files)\n", base, len(files))
	failed, spent := failures{}, time.Duration(0)
	for _, p := range parts {
		jobs := touchedJobs(m, p, files)
		cost := p.estimate * time.Duration(len(jobs)) / time.Duration(max(1, len(p.jobs(m))))
		switch {
		case len(jobs) == 0:
			fmt.Fprintf(out, "%-10s not touched\n", p.name)
		case spent+cost > limit:
			fmt.Fprintf(out, "%-10s LEFT OUT: about %s, and the limit is %s; run `make test-all`\n", p.name, round(cost), limit)
		default:
			spent += cost
			failed.add(p.name, runPart(ctx, out, m, p, jobs))
		}
	}
	return failed.err()
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
	in := inputs{files: buildFiles, all: map[string]bool{}}
	for _, dir := range m.dirs {
		in.all[dir] = true
	}
	pkgs := j.packages
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

// change returns the commit before the change, and the files that differ from it, those that are
// not committed included.
func change(ctx context.Context, base string) (string, []string, error) {
	if base == "" {
		base = defaultBase(ctx)
	}
	base, err := git(ctx, "rev-parse", "--verify", base+"^{commit}")
	if err != nil {
		return "", nil, fmt.Errorf("%w: name the commit before the change with BASE=REF", err)
	}
	changed, err := git(ctx, "diff", "--name-only", base)
	if err != nil {
		return "", nil, err
	}
	untracked, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	return base, strings.Fields(changed + "\n" + untracked), err
}

// defaultBase is where this branch left origin/main. On main itself it is the newest commit that is
// older than a session.
func defaultBase(ctx context.Context) string {
	head, _ := git(ctx, "rev-parse", "HEAD")
	if fork, err := git(ctx, "merge-base", "HEAD", "origin/main"); err == nil && fork != head {
		return fork
	}
	if old, err := git(ctx, "rev-list", "-1", "--before="+session, "HEAD"); err == nil && old != "" {
		return old
	}
	return head
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
