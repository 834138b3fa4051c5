package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// charts packs the Helm charts as `helm package --version --app-version` does, with
// the digest of this version's image as well. Its .helmignore files leave out ci/,
// whose values are for the tests.
func (r *release) charts(context.Context) error {
	for _, p := range r.programs {
		dir := filepath.Join(r.root, "deployments", "helm", p.name)
		if _, err := os.Stat(dir); p.image == "" || err != nil {
			continue
		}
		entries, err := below(dir, ".")
		if err != nil {
			return err
		}
		packed := entries[:0]
		for _, e := range entries {
			if strings.HasPrefix(e.name, "ci/") {
				continue
			}
			if e, err = r.pinChart(p, e); err != nil {
				return err
			}
			packed = append(packed, e)
		}
		name := fmt.Sprintf("%s-%s.tgz", p.name, r.number()) // as Helm names it
		if err := r.add(name, published.KindChart, anywhere, func(w io.Writer) error {
			return tarball(w, p.name, packed, r.time)
		}); err != nil {
			return err
		}
	}
	return nil
}

// pinChart writes the version into Chart.yaml, and the image's digest into values.yaml.
func (r *release) pinChart(p program, e entry) (entry, error) {
	image, _ := r.manifest.Image(p.image)
	changes := map[string][][2]string{
		"Chart.yaml":  {{"\nversion: 0.1.0\n", "\nversion: " + r.number() + "\n"}, {"\nappVersion: dev\n", "\nappVersion: " + r.version + "\n"}},
		"values.yaml": {{"\n  digest: \"\"\n", "\n  digest: " + image.Digest + "\n"}},
	}[e.name]
	if changes == nil {
		return e, nil
	}
	name := path.Join("deployments/helm", p.name, e.name)
	e.file = r.overlay(name)
	_, err := r.pin(name, changes...)
	return e, err
}
