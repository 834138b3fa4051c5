package base

import (
	"fmt"
	"io"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxManifest is what the API takes.
const MaxManifest = runnerapi.MaxAppBody

// ReadManifest reads an App file, or standard input for "-".
func ReadManifest(path string, stdin io.Reader) (appfile.File, error) {
	text, err := ReadLimited(path, stdin, MaxManifest)
	if err != nil {
		return appfile.File{}, cli.Usage(err)
	}
	m, err := appfile.Read(text)
	if err != nil {
		return appfile.File{}, cli.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return m, nil
}

// ReadLimited reads a file, or standard input for "-".
func ReadLimited(path string, stdin io.Reader, limit int) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(text) > limit:
		return nil, fmt.Errorf("%s: has more than %d bytes", path, limit)
	}
	return text, nil
}
