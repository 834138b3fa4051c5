package cmdutil

import (
	"fmt"
	"io"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxManifest is what the API takes.
const MaxManifest = runnerapi.MaxAppBody

// ReadManifest reads an App file, or standard input for "-".
func ReadManifest(path string, stdin io.Reader) (appfile.File, error) {
	text, err := cli.ReadLimited(path, stdin, MaxManifest)
	if err != nil {
		return appfile.File{}, cli.Usage(err)
	}
	m, err := appfile.Read(text)
	if err != nil {
		return appfile.File{}, cli.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return m, nil
}
