package upstream

import (
	"context"
	_ "embed"
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

const (
	traefikModule = "test/upstream/traefik"
	// lego is the module with the providers, and the folder that takes its place in Traefik's
	// go.mod.
	lego = "github.com/go-acme/lego/v5"
)

// legoLeftOut are folders of the module that Traefik does not need. The first has the providers.
var legoLeftOut = []string{"providers", "cmd", "e2e", filepath.Join("internal", "generators")}

// legoProviders is the package that takes the place of the list of all providers.
//
//go:embed legoproviders.go.txt
var legoProviders []byte

// prepareTraefik copies the module lego without its providers into Traefik's folder. Go would take
// an overlay for one file, but refuses it for a file in the module cache.
func prepareTraefik(ctx context.Context) (err error) {
	module := inputs.Path(traefikModule)
	folder := filepath.Join(module, "lego")
	unlock, err := filelock.Wait(ctx, folder+".lock", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	version, err := required(ctx, module, lego)
	if err != nil {
		return err
	}
	mark := filepath.Join(folder, "VERSION")
	if had, err := os.ReadFile(mark); err == nil && string(had) == version {
		return nil
	}
	from, err := download(ctx, lego+"@"+version)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := copySources(folder, from, legoLeftOut); err != nil {
		return err
	}
	providers := filepath.Join(folder, "providers", "dns")
	if err := os.MkdirAll(providers, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(providers, "dns.go"), legoProviders, 0o600); err != nil {
		return err
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
