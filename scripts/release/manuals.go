package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

// shells are those with completions, and where packages have them.
var shells = map[string]string{
	"bash": "usr/share/bash-completion/completions/%s",
	"zsh":  "usr/share/zsh/site-functions/_%s",
	"fish": "usr/share/fish/vendor_completions.d/%s.fish",
}

// manual returns the folder of a program's manual pages and completions, as packages have them.
func (r *release) manual(p program) string { return filepath.Join(r.staging, "manual", p.name) }

// manuals has each program write its manual pages and completions, on this machine.
func (r *release) manuals(ctx context.Context) error {
	here := v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	for _, p := range r.programs {
		if !p.commands {
			continue
		}
		if !exists(r.bin(p, here)) {
			build := image.GoBuild{Dir: r.root, Package: p.pkg, Output: r.bin(p, here), LDFlags: r.ldflags(p), Platform: here}
			if err := build.Run(ctx); err != nil {
				return err
			}
		}
		if err := describe(ctx, r.bin(p, here), p.name, r.manual(p), r.time); err != nil {
			return err
		}
	}
	return nil
}

// describe writes a program's manual pages and completions below a folder.
func describe(ctx context.Context, file, name, into string, at time.Time) error {
	pages := filepath.Join(into, "usr/share/man/man1")
	if err := os.MkdirAll(pages, 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	if _, err := said(ctx, at, file, "man", pages); err != nil {
		return err
	}
	if err := zipAll(pages); err != nil {
		return err
	}
	for shell, place := range shells {
		script, err := said(ctx, at, file, "completion", shell)
		if err != nil {
			return err
		}
		place := filepath.Join(into, fmt.Sprintf(place, name))
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil { //nolint:gosec // a build output that all users may read
			return err
		}
		if err := write(place, text(script)); err != nil {
			return err
		}
	}
	return nil
}

func said(ctx context.Context, at time.Time, file string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()))
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", filepath.Base(file), strings.Join(args, " "), err)
	}
	return out, err
}

// zipAll replaces the pages of a folder by compressed ones, as distributions have them.
func zipAll(dir string) error {
	pages, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, page := range pages {
		file := filepath.Join(dir, page.Name())
		if err := write(file+".gz", func(w io.Writer) error {
			zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
			if err != nil {
				return err
			}
			return errors.Join(copyInto(zipped, file), zipped.Close())
		}); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}
