// Package chartflags has the flags by which command lines name a chart and its values. They are
// Helm's.
package chartflags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Chart are the flags that name a chart.
type Chart struct {
	name   string
	source runnerapi.ChartSource
}

// Add adds the flags.
func (c *Chart) Add(f *pflag.FlagSet) {
	f.StringVar(&c.name, "chart", "", "chart: NAME with --repo, oci://HOST/PATH, a directory or an archive")
	f.StringVar(&c.source.Repository, "repo", "", "URL of the chart's repository")
	f.StringVar(&c.source.Version, "version", "", "version of the chart, or with --repo a range such as ^1.4 (default: the newest)")
	f.StringVar(&c.source.CredentialsSecret, "credentials-secret", "", "Secret in the namespace with url, username and password for the repository or registry")
}

// Source returns the chart. It packs a folder as helm package does.
func (c *Chart) Source() (source runnerapi.ChartSource, err error) {
	source = c.source
	switch {
	case c.name == "":
		return source, errors.New("no chart: give --chart NAME with --repo, --chart oci://…, or --chart with a folder or an archive")
	case strings.HasPrefix(c.name, "oci://"):
		source.OCI = c.name
	case source.Repository != "":
		source.Name = c.name
	default:
		if source.Archive, err = archived(c.name); err != nil {
			return source, fmt.Errorf("--chart: %w", err)
		}
	}
	return source, nil
}

// archived returns a chart of this machine.
func archived(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w (a chart of a repository wants --repo)", err)
	}
	if !info.IsDir() {
		return cli.ReadLimited(name, nil, runnerapi.MaxChartArchive)
	}
	if _, err := os.Stat(filepath.Join(name, "Chart.yaml")); err != nil {
		return nil, fmt.Errorf("%s is not a chart: it has no Chart.yaml", name)
	}
	chart, err := loader.LoadDir(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	dir, err := os.MkdirTemp("", "pipeops-chart-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	packed, err := chartutil.Save(chart, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if info, err = os.Stat(packed); err != nil {
		return nil, err
	}
	if info.Size() > runnerapi.MaxChartArchive {
		return nil, fmt.Errorf("%s has more than %d MiB, packed: list what is not part of the chart in .helmignore", name, runnerapi.MaxChartArchive>>20)
	}
	return os.ReadFile(packed)
}
