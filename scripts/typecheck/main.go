// Command typecheck type-checks packages as they are compiled for other platforms, from source
// alone. `GOOS=windows go vet` finds the same mistakes, and compiles a thousand packages first.
//
//	go run ./scripts/typecheck [-platforms windows/amd64,darwin/arm64] PACKAGES
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	platforms := flag.String("platforms", "windows/amd64,darwin/arm64", "what to type-check for")
	flag.Parse()
	if err := run(os.Stderr, *platforms, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, platforms string, patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("name the packages, such as ./cmd/agent")
	}
	failed := false
	for platform := range strings.SplitSeq(platforms, ",") {
		os, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("-platforms: %q is not an OS/ARCH, such as windows/amd64", platform)
		}
		mistakes, err := check(os, arch, patterns)
		if err != nil {
			return fmt.Errorf("load packages for %s: %w", platform, err)
		}
		for _, m := range mistakes {
			failed = true
			fmt.Fprintf(out, "%s: %s\n", platform, m)
		}
	}
	if failed {
		return errors.New("some packages do not compile there")
	}
	return nil
}

// check returns what is wrong with the packages, and with those that they import.
func check(goos, goarch string, patterns []string) (mistakes []packages.Error, err error) {
	roots, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return nil, err
	}
	packages.Visit(roots, nil, func(p *packages.Package) { mistakes = append(mistakes, p.Errors...) })
	return mistakes, nil
}
