package parts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// keepVersions is how many builds of a part stay in the cache: different branches alternate without
// a rebuild.
const keepVersions = 3

type builder struct {
	source   string
	dir      string
	progress *progress
}

// binary builds a program unless it exists, and returns its path.
func (b *builder) binary(ctx context.Context, bin binary) (string, error) {
	key, err := hashFiles(b.source, bin.inputs, keySalt(), bin.pkg, bin.ldflags)
	if err != nil {
		return "", err
	}
	dir, err := b.cached(ctx, bin.name, key, bin.title, bin.expect, func(ctx context.Context, dir string) error {
		return goBuild(ctx, filepath.Join(b.source, bin.dir), bin.pkg, bin.ldflags, filepath.Join(dir, bin.name))
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, bin.name), nil
}

// cached returns the directory NAME-KEY. If it does not exist, make fills it first. Other processes
// that want the same wait for the result.
func (b *builder) cached(ctx context.Context, name, key, title string, expect time.Duration,
	fill func(ctx context.Context, dir string) error,
) (string, error) {
	target := filepath.Join(b.dir, name+"-"+key)
	if present(target) {
		return target, nil
	}
	err := b.progress.run(title, expect, func() (err error) {
		unlock, err := filelock.Wait(ctx, filepath.Join(b.dir, name+".lock"), nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock()) }()
		if present(target) { // another process made it during the wait
			return nil
		}
		tmp, err := os.MkdirTemp(b.dir, ".making-"+name+"-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
		if err := os.Chmod(tmp, 0o755); err != nil { // binaries that all users may run
			return err
		}
		if err := fill(ctx, tmp); err != nil {
			return err
		}
		if err := os.Rename(tmp, target); err != nil {
			return err
		}
		return prune(b.dir, name)
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", title, err)
	}
	return target, nil
}

// present also marks the directory as used, for prune.
func present(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// prune removes all but the most recently used builds of a part.
func prune(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type version struct {
		path string
		used time.Time
	}
	var versions []version
	for _, entry := range entries {
		if part, _, ok := strings.Cut(entry.Name(), "-"); !ok || part != name || !entry.IsDir() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		versions = append(versions, version{filepath.Join(dir, entry.Name()), info.ModTime()})
	}
	slices.SortFunc(versions, func(a, b version) int { return b.used.Compare(a.used) })
	for _, old := range versions[min(keepVersions, len(versions)):] {
		if err := os.RemoveAll(old.path); err != nil {
			return err
		}
	}
	return nil
}

func goBuild(ctx context.Context, dir, pkg, ldflags, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath",
		"-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", output, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=linux", "GOARCH=")
	// The compiler and linker are separate processes: Ctrl-C must end all of them.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("go build %s in %s: %w\n%s", pkg, dir, err, tail(stderr.String(), 20))
	}
	return nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
