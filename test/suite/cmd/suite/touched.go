package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

var (
	// productFiles are inputs of tests that run the product's programs, as well as these.
	productFiles = []string{"scripts", "deployments", "Dockerfile"}
	// buildFiles are inputs of every test.
	buildFiles = []string{"go.mod", "go.sum"}
	programs   = []string{modulePath + "/cmd/agent", modulePath + "/cmd/controlplane", modulePath + "/cmd/runner"}
)

// runTouched runs the parts whose inputs a change touched, as far as they fit into the limit.
func runTouched(ctx context.Context, r runner, m *module, args []string) error {
	flags := flag.NewFlagSet("touched", flag.ContinueOnError)
	base := flags.String("base", os.Getenv("BASE"), "the commit before the change")
	limit := flags.Duration("limit", 24*time.Hour, "how long the parts may take together, by their estimates")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, since, err := changedFiles(ctx, *base)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "== parts of the release suite touched %s (%d files)\n", since, len(files))
	var chosen []part
	for _, p := range parts {
		with := append(slices.Clone(chosen), p)
		switch {
		case p.nightly:
			fmt.Fprintf(r.out, "%-10s for the night: make test-part PART=%s\n", p.name, p.name)
		case !m.touches(p, files):
			fmt.Fprintf(r.out, "%-10s not touched\n", p.name)
		case duration(with) > *limit:
			fmt.Fprintf(r.out, "%-10s LEFT OUT: about %s with the parts before, and %s are left: make test-part PART=%s\n", p.name, duration(with), limit.Round(time.Second), p.name)
		default:
			fmt.Fprintf(r.out, "%-10s about %s: %s\n", p.name, p.estimate, p.what)
			chosen = with
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	return r.run(ctx, "touched", partsPlan(m, chosen))
}

// duration returns how long parts take in their lanes, by their estimates.
func duration(chosen []part) time.Duration {
	var lanes [aloneLane + 1]time.Duration
	for _, p := range chosen {
		lanes[p.lane] += p.estimate
	}
	return slices.Max(lanes[:aloneLane]) + lanes[aloneLane]
}

// touches reports whether one of the files is an input of a part: of its packages, or of what these
// import, or among the files that its tests read. A file in a folder that is not a package, such as
// testdata, belongs to the nearest package above it.
func (m *module) touches(p part, files []string) bool {
	var pkgs []string
	for _, j := range p.jobs(m) {
		pkgs = append(pkgs, j.Packages...)
	}
	others := slices.Concat(buildFiles, p.files)
	if p.product {
		pkgs, others = append(pkgs, programs...), append(others, productFiles...)
	}
	in, all := map[string]bool{}, map[string]bool{}
	for _, dir := range m.dirs {
		all[dir] = true
	}
	for _, pkg := range pkgs {
		in[m.dirs[pkg]] = true
		for _, dep := range m.deps[pkg] {
			in[m.dirs[dep]] = true
		}
	}
	return slices.ContainsFunc(files, func(file string) bool {
		if slices.ContainsFunc(others, func(f string) bool { return file == f || strings.HasPrefix(file, f+"/") }) {
			return true
		}
		dir := path.Dir(file)
		for !all[dir] && dir != "." {
			dir = path.Dir(dir)
		}
		return in[dir]
	})
}

// changedFiles returns the files that differ from base, and says what base is. Without base, that
// is where this branch left origin/main. On main itself nothing shows where the last change began:
// it may consist of many commits. All files count as changed there.
func changedFiles(ctx context.Context, base string) (files []string, since string, err error) {
	since = "since " + base
	if base == "" {
		head, err := git(ctx, "rev-parse", "HEAD")
		if err != nil {
			return nil, "", err
		}
		base, err = git(ctx, "merge-base", "HEAD", "origin/main")
		if err != nil || base == head {
			all, err := git(ctx, "ls-files")
			return strings.Split(all, "\n"), "at any time, as this is main", err
		}
		since = "since this branch left origin/main"
	}
	changed, err := git(ctx, "diff", "--name-only", base)
	if err != nil {
		return nil, "", fmt.Errorf("%w: name the commit before the change with BASE=REF", err)
	}
	untracked, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	return strings.Fields(changed + "\n" + untracked), since, err
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
