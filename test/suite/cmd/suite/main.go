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
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	if len(args) > 0 && args[0] == "execute" { // called by gotestsum
		return execute(ctx, os.Stdout, args[1:])
	}
	jobs, err := choose(ctx, args)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return 0, err
	}
	if args[0] == "test" {
		defer fmt.Println("\nnot run here, but by `make test-all` (test/README.md lists what no suite runs):\n" + list(parts))
	}
	return 0, runner{
		out: os.Stdout, modfile: "internal/tools/gotestsum/go.mod", dir: filepath.Join("bin", "test", args[0]),
		flaky: flakyList(filepath.Join(cache, "pipeops-test", "flaky-tests.json")), strict: os.Getenv("CI") != "",
	}.run(ctx, jobs)
}

// choose returns the jobs of a command.
func choose(ctx context.Context, args []string) ([]job, error) {
	m, err := loadModule(ctx)
	if err != nil {
		return nil, err
	}
	switch strings.Join(args[:min(1, len(args))], "") {
	case "test":
		return testJobs(m), nil
	case "all":
		return allJobs(m), nil
	case "short":
		return []job{{Args: []string{"-short"}, Packages: m.of(own, programs, clusters)}, {Args: []string{"-short"}, Dir: provider, Packages: m.below(provider)}}, nil
	case "race":
		return []job{{Race: true, Args: []string{"-short"}, Packages: append(m.of(own), ofProduct(m.of(clusters, programs))...)}}, nil
	case "part":
		chosen := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(args[1:], p.name) })
		if len(chosen) == 0 || len(chosen) != len(args[1:]) {
			return nil, fmt.Errorf("unknown part in %q; choose from:\n%s", args[1:], list(parts))
		}
		return partJobs(m, chosen), nil
	case "touched":
		limit, err := time.ParseDuration(os.Getenv("LIMIT"))
		files, unread := io.ReadAll(os.Stdin)
		return partJobs(m, touchedParts(os.Stdout, m, strings.Fields(string(files)), limit)), errors.Join(err, unread)
	}
	return nil, errors.New("usage: suite test, all, short, race, part NAME..., or touched with the changed files in standard input")
}

// list returns a line about each part.
func list(parts []part) (text string) {
	for _, p := range parts {
		text += fmt.Sprintf("  %-10s about %s: %s\n", p.name, p.estimate, p.what)
	}
	return text
}
