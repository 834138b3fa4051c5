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
	text, err := ReadFile(path, stdin)
	if err != nil {
		return appfile.File{}, err
	}
	return ParseManifest(path, text)
}

// ReadFile reads a file of at most MaxManifest bytes, or standard input for "-".
func ReadFile(path string, stdin io.Reader) ([]byte, error) {
	text, err := cli.ReadLimited(path, stdin, MaxManifest)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return text, nil
}

// ParseManifest reads the text of an App file.
func ParseManifest(path string, text []byte) (appfile.File, error) {
	m, err := appfile.Read(text)
	if err != nil {
		return appfile.File{}, cli.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return m, nil
}
