package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// trimmed is a module of others without its plugins, most of which are another cloud's library. Its
// copy lies in the folder of a module of ours, whose go.mod has the copy in its place. Go would
// take an overlay for one file, but refuses it for a file in the module cache.
type trimmed struct {
	in      string // the folder of the module of ours
	module  string
	folder  string   // of the copy
	leftOut []string // folders that are not copied
	files   map[string][]byte
}

// prepare makes the copy, unless it is there in this version.
func (m trimmed) prepare(ctx context.Context) (err error) {
	ours := inputs.Path(m.in)
	folder := filepath.Join(ours, m.folder)
	unlock, err := filelock.Wait(ctx, folder+".lock", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	version, err := required(ctx, ours, m.module)
	if err != nil {
		return err
	}
	mark := filepath.Join(folder, "VERSION")
	if had, err := os.ReadFile(mark); err == nil && string(had) == version {
		return nil
	}
	from, err := download(ctx, m.module+"@"+version)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := copySources(folder, from, m.leftOut); err != nil {
		return err
	}
	for name, content := range m.files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(mark, []byte(version), 0o600) // last: it says that all is there
}

// required returns the version of a module that a go.mod requires.
func required(ctx context.Context, folder, module string) (version string, err error) {
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := goJSON(ctx, folder, &file, "mod", "edit", "-json"); err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Path == module {
			return r.Version, nil
		}
	}
	return "", fmt.Errorf("%s/go.mod does not require %s", folder, module)
}

// download returns the folder of a module in the module cache.
func download(ctx context.Context, module string) (folder string, err error) {
	var found struct{ Dir string }
	// Not in a module's folder, whose go.mod may replace it.
	err = goJSON(ctx, os.TempDir(), &found, "mod", "download", "-json", module)
	return found.Dir, err
}

func goJSON(ctx context.Context, folder string, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return json.Unmarshal(text, out)
}

// copySources copies a module's Go files, go.mod and licence, without tests and some folders.
func copySources(to, from string, leftOut []string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(leftOut, name) || entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if !wanted(name) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o600)
	})
}

func wanted(name string) bool {
	return name == "go.mod" || name == "LICENSE" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
