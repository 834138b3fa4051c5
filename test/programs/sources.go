package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// sources are what a program is made of, named from the top of the repository. What
// comes from Go's module cache is not among them: go.sum stands for it.
type sources struct {
	Files, Folders []string
}

// pkg is the output of `go list` about a package.
type pkg struct {
	Dir      string
	Standard bool
	Module   *struct {
		Main    bool
		Replace *struct{ Version string }
	}
	GoFiles, IgnoredGoFiles, SFiles, HFiles, EmbedFiles []string
}

// ours reports whether a package lies in a folder that people edit.
func (p pkg) ours() bool {
	return !p.Standard && p.Module != nil && (p.Module.Main || p.Module.Replace != nil && p.Module.Replace.Version == "")
}

// sources asks Go what the program is made of.
func (p Program) sources(ctx context.Context) (sources, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-trimpath", "-tags="+p.Tags,
		"-json=Dir,Standard,Module,GoFiles,IgnoredGoFiles,SFiles,HFiles,EmbedFiles", p.Package)
	cmd.Dir = p.dir()
	cmd.Env = append(append(os.Environ(), environ...), "CGO_ENABLED=0", "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return sources{}, fmt.Errorf("go list: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	list := sources{Files: []string{filepath.Join(p.Module, "go.mod"), filepath.Join(p.Module, "go.sum")}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var found pkg
		if err := decoder.Decode(&found); errors.Is(err, io.EOF) {
			return list.sorted(), nil
		} else if err != nil {
			return sources{}, fmt.Errorf("go list: %w", err)
		}
		if err := list.add(found); err != nil {
			return sources{}, err
		}
	}
}

func (s *sources) add(p pkg) error {
	if !p.ours() {
		return nil
	}
	dir, err := filepath.Rel(inputs.Root(), p.Dir)
	if err != nil {
		return err
	}
	s.Folders = append(s.Folders, dir)
	for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.SFiles, p.HFiles) {
		if !strings.HasSuffix(file, "_test.go") {
			s.Files = append(s.Files, filepath.Join(dir, file))
		}
	}
	for _, file := range p.EmbedFiles {
		s.Files = append(s.Files, filepath.Join(dir, file))
		s.Folders = append(s.Folders, filepath.Join(dir, filepath.Dir(file)))
	}
	return nil
}

func (s sources) sorted() sources {
	slices.Sort(s.Files)
	slices.Sort(s.Folders)
	return sources{slices.Compact(s.Files), slices.Compact(s.Folders)}
}

// sum returns the checksum of all sources. The test depends on them from then on. That the sources
// are still the same ones is part of it: a new one is a new name in a folder, or a new import in a
// file.
func (s sources) sum() (string, error) {
	sum := sha256.New()
	for _, name := range s.Files {
		content, err := inputs.Read(inputs.Path(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a module without dependencies has no go.sum
			return "", err
		}
		fmt.Fprintf(sum, "%q %d\n%s\n", name, len(content), content)
	}
	for _, name := range s.Folders {
		entries, err := inputs.List(inputs.Path(name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%q %q\n", name, entries)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
