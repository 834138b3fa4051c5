// Command suite runs the project's test suites: `go test` on groups of packages, side by side, with
// one report. The report prints a line for each package when it ends. It also lists long-running
// tests, the slowest tests, the skipped tests with their reasons, and the commands to rerun what
// failed.
//
// It imports only the standard library, so that it starts before anything else is compiled.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: suite COMMAND
  test               what a change must pass
  all                what a release must pass: the tests of test, and every part below
  short              unit tests alone: no cluster, no broker, no database
  race               the short tests with the race detector
  package PKG [RUN]  the tests of one package that match RUN, as test runs them
  cover              what test runs, and what it leaves out of the product's packages, with the coverage
                     of production code
  part NAME...       parts of the release suite: ` + partNames + `
  touched            the parts whose inputs a change touched; -base REF names where it begins,
                     -limit D leaves parts out that would end later
  list               the parts, and the packages of each group`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	m, err := loadModule(ctx)
	if err != nil {
		return err
	}
	return dispatch(ctx, out, m, args)
}

func dispatch(ctx context.Context, out io.Writer, m *module, args []string) error {
	name, rest := args[0], args[1:]
	switch {
	case name == "test" && len(rest) == 0:
		return runTest(ctx, out, m)
	case name == "all" && len(rest) == 0:
		return runAll(ctx, out, m)
	case name == "short" && len(rest) == 0:
		return runJobs(ctx, out, "short", shortJobs())
	case name == "cover" && len(rest) == 0:
		return runCover(ctx, out, m)
	case name == "race" && len(rest) == 0:
		return runJobs(ctx, out, "race", raceJobs(m))
	case name == "package" && (len(rest) == 1 || len(rest) == 2):
		return runPackage(ctx, out, m, rest)
	case name == "part" && len(rest) > 0:
		return runParts(ctx, out, m, rest)
	case name == "touched":
		return touchedCommand(ctx, out, m, rest)
	case name == "list" && len(rest) == 0:
		list(out, m)
		return nil
	}
	return fmt.Errorf("unknown command %q\n%s", strings.Join(args, " "), usage)
}

// runTest runs what a change must pass, and prints what that leaves out.
func runTest(ctx context.Context, out io.Writer, m *module) error {
	err := runJobs(ctx, out, "test", testJobs(m))
	fmt.Fprintln(out, "\nleft out here, run by `make test-all`:")
	for _, p := range parts {
		fmt.Fprintf(out, "  %-10s %s\n", p.name, p.what)
	}
	return err
}

func runParts(ctx context.Context, out io.Writer, m *module, names []string) error {
	var named []part
	for _, name := range names {
		p, err := partNamed(name)
		if err != nil {
			return err
		}
		named = append(named, p)
	}
	return runNamed(ctx, out, m, named)
}

// runNamed runs the jobs of parts that have not passed yet.
func runNamed(ctx context.Context, out io.Writer, m *module, named []part) error {
	files, err := trackedFiles(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	var pieces []piece
	for _, p := range named {
		pieces = append(pieces, m.take(out, p, p.jobs(m), files))
	}
	return runPieces(ctx, out, pieces)
}

func runPackage(ctx context.Context, out io.Writer, m *module, args []string) error {
	paths, err := m.match(ctx, args[0])
	if err != nil {
		return err
	}
	var jobs []job
	for _, j := range testJobs(m) {
		if j.packages = intersect(j.packages, paths); len(j.packages) == 0 {
			continue
		}
		if len(args) == 2 {
			j.args = append(j.args, "-run", args[1])
		}
		j.args = append(j.args, "-v")
		jobs = append(jobs, j)
	}
	return runJobs(ctx, out, "package", jobs)
}

func touchedCommand(ctx context.Context, out io.Writer, m *module, args []string) error {
	flags := flag.NewFlagSet("touched", flag.ContinueOnError)
	base := flags.String("base", os.Getenv("BASE"), "the commit before the change")
	limit := flags.Duration("limit", 24*time.Hour, "how long the parts may take together, by their estimates")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return runTouched(ctx, out, m, *base, *limit)
}

// list prints the parts, and which packages have which tests.
func list(out io.Writer, m *module) {
	for _, p := range parts {
		fmt.Fprintf(out, "part %s: %s (about %s)\n", p.name, p.what, p.estimate)
	}
	for _, j := range testJobs(m) {
		fmt.Fprintf(out, "%s:\n  %s\n", j.name, strings.Join(j.packages, "\n  "))
	}
}

// failures are the names of what failed, in order.
type failures []string

func (f *failures) add(name string, err error) {
	if err != nil {
		*f = append(*f, fmt.Sprintf("%s: %v", name, err))
	}
}

func (f failures) err() error {
	if len(f) == 0 {
		return nil
	}
	return errors.New("failed:\n  " + strings.Join(f, "\n  "))
}
