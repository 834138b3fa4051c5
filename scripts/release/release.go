package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

// program is one of those that are published.
type program struct {
	name, pkg string
	image     string // name of its image; empty for none
	linuxOnly bool
}

func (p program) on(platform v1.Platform) bool { return !p.linuxOnly || platform.OS == "linux" }

// release is one version in the making.
type release struct {
	version, commit, root, dir string
	programs                   []program
	files                      []string
	platforms                  []v1.Platform
	time                       time.Time
	out                        io.Writer
	staging                    string
}

// publish is the directory of what is published, bin that of the programs.
func (r *release) publish() string { return filepath.Join(r.staging, "publish") }

func (r *release) bin(p program, platform v1.Platform) string {
	name := p.name
	if platform.OS == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.staging, "bin", platform.OS+"-"+platform.Architecture, name)
}

func (r *release) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// compile makes the programs for all platforms.
func (r *release) compile(ctx context.Context) error {
	if err := os.MkdirAll(r.publish(), 0o755); err != nil { //nolint:gosec // a build output, for everybody
		return err
	}
	flags := fmt.Sprintf("-X main.version=%s -X main.commit=%s", r.version, r.commit)
	for _, platform := range r.platforms {
		for _, p := range r.programs {
			if !p.on(platform) {
				continue
			}
			r.say("compile %s for %s", p.name, platform)
			build := image.GoBuild{Dir: r.root, Package: p.pkg, Output: r.bin(p, platform), LDFlags: flags, Platform: platform}
			if err := build.Run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// archives packs the programs of each platform, as its users expect: zip for Windows.
func (r *release) archives(context.Context) error {
	for _, platform := range r.platforms {
		entries, err := r.entries(platform)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("pipeops_%s_%s_%s", strings.TrimPrefix(r.version, "v"), platform.OS, platform.Architecture)
		pack, suffix := tarball, ".tar.gz"
		if platform.OS == "windows" {
			pack, suffix = zipped, ".zip"
		}
		r.say("pack %s", name+suffix)
		if err := write(filepath.Join(r.publish(), name+suffix), func(w io.Writer) error {
			return pack(w, name, entries, r.time)
		}); err != nil {
			return err
		}
	}
	return nil
}

// entries are what goes into a platform's archive.
func (r *release) entries(platform v1.Platform) ([]entry, error) {
	var entries []entry
	for _, p := range r.programs {
		if p.on(platform) {
			file := r.bin(p, platform)
			entries = append(entries, entry{name: filepath.Base(file), file: file, mode: 0o755})
		}
	}
	for _, name := range r.files {
		found, err := below(r.root, name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	return entries, nil
}

// images makes those of the programs that have one, for all Linux platforms at once.
func (r *release) images(context.Context) error {
	for _, p := range r.programs {
		if p.image == "" {
			continue
		}
		var all []v1.Image
		for _, platform := range r.platforms {
			if platform.OS != "linux" {
				continue
			}
			img, err := image.Build(image.Spec{Binary: r.bin(p, platform), Name: p.name, Platform: platform,
				CABundle: image.SystemCABundle(), Labels: map[string]string{
					image.LabelTitle: p.name, image.LabelVersion: r.version, image.LabelRevision: r.commit,
					image.LabelSource: "https://github.com/pipeops/pipeops-vm-agent",
				}})
			if err != nil {
				return err
			}
			all = append(all, img)
		}
		if len(all) == 0 {
			continue
		}
		index, err := image.Index(all...)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-image_%s.tar", p.name, strings.TrimPrefix(r.version, "v"))
		r.say("pack %s", file)
		if err := image.WriteArchive(filepath.Join(r.publish(), file), p.image+":"+r.version, index); err != nil {
			return err
		}
	}
	return nil
}
