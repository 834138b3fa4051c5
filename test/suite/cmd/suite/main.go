// Command suite chooses which tests run, and how: `go test` on groups of packages side by side. By
// gotestsum it reports on them as on one command, and repeats the tests that failed.
//
// It imports only the standard library, so that it starts before anything else is compiled.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: suite COMMAND
  test          what a change must pass
  all           what a release must pass: the tests of test, and every part below
  short         unit tests alone: no cluster, no broker, no database
  race          the short tests with the race detector
  part NAME...  parts of the release suite: ` + partNames + `
  touched       the parts whose inputs a change touched; -base REF names where it begins,
                -limit D leaves parts out that would end later`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, out io.Writer, args []string) (int, error) {
	if len(args) == 0 {
		return 1, errors.New(usage)
	}
	if args[0] == "execute" { // called by gotestsum
		return execute(ctx, out, args[1:])
	}
	m, err := loadModule(ctx)
	if err != nil {
		return 1, err
	}
	flaky, err := newFlakyList()
	if err != nil {
		return 1, err
	}
	r := runner{out: out, errOut: os.Stderr, tool: gotestsum, dir: filepath.Join("bin", "test"), flaky: flaky, strict: os.Getenv(strictly) != ""}
	if err := dispatch(ctx, r, m, args); err != nil {
		return 1, err
	}
	return 0, nil
}

func dispatch(ctx context.Context, r runner, m *module, args []string) error {
	name, rest := args[0], args[1:]
	switch {
	case name == "test" && len(rest) == 0:
		defer leftOut(r.out)
		return r.run(ctx, name, testPlan(m))
	case name == "all" && len(rest) == 0:
		return r.run(ctx, name, allPlan(m))
	case name == "short" && len(rest) == 0:
		return r.run(ctx, name, shortPlan())
	case name == "race" && len(rest) == 0:
		return r.run(ctx, name, racePlan(m))
	case name == "part" && len(rest) > 0:
		chosen, err := partsNamed(rest)
		if err != nil {
			return err
		}
		return r.run(ctx, name, partsPlan(m, chosen))
	case name == "touched":
		return runTouched(ctx, r, m, rest)
	}
	return fmt.Errorf("unknown command %q\n%s", strings.Join(args, " "), usage)
}
