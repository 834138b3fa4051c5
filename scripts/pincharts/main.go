// Command pincharts writes the digests of the components' charts, as their projects publish them.
// With -download it puts the charts themselves into a directory, as a chart repository. With
// -for-tests, these are also the charts that only tests install.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const header = `# The h1 hash (golang.org/x/mod/sumdb/dirhash) of each chart's files, as NAME-VERSION: HASH.
# ` + "`make pin-charts`" + ` writes this file from what upstream publishes.
`

// ofTests are charts that only tests install.
var ofTests = []components.Chart{{Repository: "https://traefik.github.io/charts", Name: "traefik", Version: "41.3.0"}}

func main() {
	directory := flag.String("download", "", "put the components' charts, verified, and their index into this directory")
	forTests := flag.Bool("for-tests", false, "download those that only tests install, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	u := upstream{fetch: repository.New(repository.Options{Guard: egress.Guard{Hosts: egress.EveryHost}}), digests: "internal/components/digests.yaml"}
	charts := published()
	if *forTests || *directory == "" {
		charts = append(charts, ofTests...)
	}
	do := func() error { return u.pin(ctx, charts) }
	if *directory != "" {
		do = func() error { return u.download(ctx, *directory, charts) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "pincharts:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

// published returns the components' charts that a repository has.
func published() (all []components.Chart) {
	for _, component := range components.All() {
		for _, c := range component.Charts {
			if !c.IsOwn() {
				all = append(all, c)
			}
		}
	}
	return all
}

// upstream is the projects' chart repositories, or a mirror of them.
type upstream struct {
	fetch   *repository.Fetcher
	mirror  string
	digests string // file of digests
}

// pin writes the digests of charts.
func (u *upstream) pin(ctx context.Context, charts []components.Chart) error {
	var text strings.Builder
	text.WriteString(header)
	for _, c := range charts {
		_, digest, err := u.archive(ctx, c)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s: %s\n", c, digest)
	}
	return os.WriteFile(u.digests, []byte(text.String()), 0o644) //nolint:gosec // it is a source file
}

// download makes a directory that serves as a chart repository, and as that of --charts. Each chart
// must have a digest.
func (u *upstream) download(ctx context.Context, directory string, charts []components.Chart) error {
	known, err := u.known()
	if err != nil {
		return err
	}
	var unpinned []string
	for _, c := range charts {
		if known[c.String()] == "" {
			unpinned = append(unpinned, c.String())
		}
	}
	if unpinned != nil {
		return fmt.Errorf("%s has no digest of %s (fix: run make pin-charts on a machine with internet access, and commit that file)",
			u.digests, strings.Join(unpinned, ", "))
	}
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // charts are public
		return err
	}
	var index strings.Builder
	index.WriteString("apiVersion: v1\nentries:\n")
	for _, c := range charts {
		archive, got, err := u.archive(ctx, c)
		if err != nil {
			return err
		}
		if want := known[c.String()]; got != want {
			return fmt.Errorf("the files of chart %s of %s have the digest %s, and %s expects %s (fix: do not use it; compare it with what upstream publishes)",
				c, c.Repository, got, u.digests, want)
		}
		name := c.String() + ".tgz"
		fmt.Fprintf(&index, "  %s:\n  - name: %[1]s\n    version: %s\n    urls: [%s]\n", c.Name, c.Version, name)
		if err := os.WriteFile(filepath.Join(directory, name), archive, 0o644); err != nil { //nolint:gosec // charts are public
			return err
		}
	}
	// Last: a directory with an index is complete.
	return os.WriteFile(filepath.Join(directory, "index.yaml"), []byte(index.String()), 0o644) //nolint:gosec // charts are public
}

// known returns the digests of the file, by chart and version.
func (u *upstream) known() (digests map[string]string, err error) {
	text, err := os.ReadFile(u.digests)
	if err != nil {
		return nil, err
	}
	return digests, yaml.Unmarshal(text, &digests)
}

// archive returns a chart's archive, unverified, and its digest.
func (u *upstream) archive(ctx context.Context, c components.Chart) (archive []byte, digest string, err error) {
	from := cmp.Or(u.mirror, c.Repository)
	archive, err = u.fetch.Chart(ctx, runnerapi.ChartSource{Repository: from, Name: c.Name, Version: c.Version}, nil)
	if err == nil {
		digest, err = render.ContentDigest(archive)
	}
	if err != nil {
		return nil, "", fmt.Errorf("chart %s from %s: %w\n(fix: run this where that address can be reached, or put the archives into shared/charts beside the repository)", c, from, err)
	}
	return archive, digest, nil
}
