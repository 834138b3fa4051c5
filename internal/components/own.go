package components

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// ownCharts are of components for which upstream publishes no chart.
//
//go:embed charts
var ownCharts embed.FS

// IsOwn reports whether a chart comes with this program, and from no repository.
func (c Chart) IsOwn() bool { return c.Repository == "" }

// loadOwn returns a chart that comes with this program.
func loadOwn(name string) (*chart.Chart, error) {
	var files []*archive.BufferedFile
	root := "charts/" + name
	err := fs.WalkDir(ownCharts, root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := ownCharts.ReadFile(path)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(path, root+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("own chart %s: %w", name, err)
	}
	ch, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("own chart %s: %w", name, err)
	}
	return ch, nil
}
