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
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// program is a published program.
type program struct {
	name, pkg string
	about     string // one line about it
	commands  bool   // it writes its manual pages and completions
	image     string // name of its image; empty for none
	dataDir   string // in its image, for a volume
	linuxOnly bool
	updates   bool // by itself: it is also published without an archive
	trusts    bool // it knows the release keys: it updates itself, or offers releases
}

func (p program) on(platform v1.Platform) bool { return !p.linuxOnly || platform.OS == "linux" }

// release is one version in the making.
type release struct {
	version, commit, root, dir string
	controlPlane               string // for installations that name none
	chartRegistry              string // where charts are pushed to; empty for nowhere
	programs                   []program
	files                      []string
	platforms                  []v1.Platform
	time                       time.Time
	expires                    time.Time // from then on no agent takes it
	out                        io.Writer
	staging                    string
	key                        *published.SecretKey // nil for an unsigned release
	trusted                    []string             // public keys that are stamped into the agents
	manifest                   published.Manifest
}

// number returns the version as in Helm charts and file names.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// publish returns the directory of published files, and bin that of the programs.
func (r *release) publish() string { return filepath.Join(r.staging, "publish") }

func (r *release) bin(p program, platform v1.Platform) string {
	name := p.name
	if platform.OS == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.staging, "bin", platform.OS+"-"+platform.Architecture, name)
}

func (r *release) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// compile builds the programs for all platforms.
func (r *release) compile(ctx context.Context) error {
	if err := os.MkdirAll(r.publish(), 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	for _, platform := range r.platforms {
		for _, p := range r.programs {
			if !p.on(platform) {
				continue
			}
			r.say("compile %s for %s", p.name, platform)
			build := image.GoBuild{Dir: r.root, Package: p.pkg, Output: r.bin(p, platform), LDFlags: r.ldflags(p), Platform: platform}
			if err := build.Run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// ldflags returns the flags that stamp a program.
func (r *release) ldflags(p program) string {
	flags := fmt.Sprintf("-X main.version=%s -X main.commit=%s", r.version, r.commit)
	if p.trusts && len(r.trusted) > 0 {
		flags += " -X main.releaseKeys=" + strings.Join(r.trusted, ",")
	}
	return flags
}

// bare publishes the programs that update themselves, without an archive.
func (r *release) bare(context.Context) error {
	for _, p := range r.programs {
		for _, platform := range r.platforms {
			if !p.updates || !p.on(platform) {
				continue
			}
			file := r.bin(p, platform)
			name := fmt.Sprintf("%s_%s_%s_%s%s", p.name, r.number(), platform.OS, platform.Architecture, filepath.Ext(file))
			if err := r.add(name, published.KindAgent, platform, func(w io.Writer) error { return copyInto(w, file) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// archives packs the programs of each platform, in the usual format: zip for Windows.
func (r *release) archives(context.Context) error {
	for _, platform := range r.platforms {
		entries, err := r.entries(platform)
		if err != nil {
			return err
		}
		name := archiveName(r.number(), platform)
		pack, suffix := tarball, ".tar.gz"
		if platform.OS == "windows" {
			pack, suffix = zipped, ".zip"
		}
		if err := r.add(name+suffix, published.KindArchive, platform, func(w io.Writer) error {
			return pack(w, name, entries, r.time)
		}); err != nil {
			return err
		}
	}
	return nil
}

// archiveName returns the name of a platform's archive, without its suffix.
func archiveName(number string, platform v1.Platform) string {
	return fmt.Sprintf("pipeops_%s_%s_%s", number, platform.OS, platform.Architecture)
}

// entries returns the contents of a platform's archive.
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
		for _, e := range found {
			if pinned := r.overlay(e.name); exists(pinned) {
				e.file = pinned
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
