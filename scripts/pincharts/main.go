// Command pincharts writes the digests of the components' charts, as their projects publish them;
// with -download, the charts themselves, as a chart repository in a directory.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const header = `# The SHA-256 of each chart's archive, as NAME-VERSION: DIGEST. ` + "`make pin-charts`" + ` writes this file
# from what upstream publishes.
`

func main() {
	directory := flag.String("download", "", "put the charts, verified, and their index into this directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	do := func() error { return pin(ctx, "internal/components/digests.yaml") }
	if *directory != "" {
		do = func() error { return download(ctx, *directory) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "pincharts:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

// each passes over the charts that a repository has.
func each(do func(components.Chart) error) error {
	for _, component := range components.All() {
		for _, c := range component.Charts {
			if c.IsOwn() {
				continue
			}
			if err := do(c); err != nil {
				return fmt.Errorf("chart %s %s: %w", c.Name, c.Version, err)
			}
		}
	}
	return nil
}

func pin(ctx context.Context, file string) error {
	fetch := repository.New(repository.Options{})
	var out strings.Builder
	out.WriteString(header)
	err := each(func(c components.Chart) error {
		archive, err := fetch.Chart(ctx, runnerapi.ChartSource{Repository: c.Repository, Name: c.Name, Version: c.Version}, nil)
		sum := sha256.Sum256(archive)
		fmt.Fprintf(&out, "%s-%s: %s\n", c.Name, c.Version, hex.EncodeToString(sum[:]))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out.String()), 0o644) //nolint:gosec // it is a source file
}

// download makes a directory that serves as a chart repository, and as that of --charts.
func download(ctx context.Context, directory string) error {
	source := components.Source{Fetch: repository.New(repository.Options{}), Unpinned: func(c components.Chart) {
		fmt.Fprintf(os.Stderr, "warning: no digest of chart %s %s is known: run make pin-charts first\n", c.Name, c.Version)
	}}
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // charts are public
		return err
	}
	var index strings.Builder
	index.WriteString("apiVersion: v1\nentries:\n")
	err := each(func(c components.Chart) error {
		archive, err := source.Archive(ctx, c)
		if err != nil {
			return err
		}
		name := c.Name + "-" + c.Version + ".tgz"
		fmt.Fprintf(&index, "  %s:\n  - name: %[1]s\n    version: %s\n    urls: [%s]\n", c.Name, c.Version, name)
		return os.WriteFile(filepath.Join(directory, name), archive, 0o644) //nolint:gosec // charts are public
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "index.yaml"), []byte(index.String()), 0o644) //nolint:gosec // charts are public
}
