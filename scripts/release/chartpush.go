package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/registry"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// checkChartRegistry returns an error for an address that Helm would not push to.
func checkChartRegistry(address string) error {
	if address != "" && !registry.IsOCI(address) {
		return fmt.Errorf("--chart-registry %s: write it as oci://HOST/PATH, such as oci://ghcr.io/pipeops/charts", address)
	}
	return nil
}

// chartPusher uploads the charts of a finished release.
type chartPusher struct{ *release }

// run does what `helm push` does, with the credentials of `helm registry login` or `docker login`.
// A second push changes nothing.
func (r chartPusher) run(options ...registry.ClientOption) error {
	if r.chartRegistry == "" {
		return nil
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return err
	}
	for _, f := range r.manifest.Files {
		if f.Kind != published.KindChart {
			continue
		}
		chart, err := os.ReadFile(filepath.Join(r.dir, f.Name))
		if err != nil {
			return err
		}
		to := strings.TrimPrefix(r.chartRegistry, registry.OCIScheme+"://")
		ref := strings.TrimSuffix(to, "/") + "/" + strings.TrimSuffix(f.Name, "-"+r.number()+".tgz") + ":" + r.number()
		pushed, err := client.Push(chart, ref, registry.PushOptCreationTime(r.time.Format(time.RFC3339)))
		if err != nil {
			return fmt.Errorf("push %s: %w (fix: the release in %s is complete; run: helm push %s %s)",
				ref, err, r.dir, filepath.Join(r.dir, f.Name), r.chartRegistry)
		}
		r.say("pushed %s@%s", ref, pushed.Manifest.Digest)
	}
	return nil
}
