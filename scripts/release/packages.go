package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// formats are those of packages for Linux.
var formats = []string{"deb", "rpm", "apk"}

// nfpmPackage is a package as nfpm's configuration has it.
type nfpmPackage struct {
	Name        string            `json:"name"`
	Arch        string            `json:"arch"`
	Platform    string            `json:"platform"`
	Version     string            `json:"version"`
	Maintainer  string            `json:"maintainer"`
	Description string            `json:"description"`
	Homepage    string            `json:"homepage"`
	License     string            `json:"license"`
	Section     string            `json:"section"`
	Priority    string            `json:"priority"`
	MTime       string            `json:"mtime"`
	Contents    []packed          `json:"contents"`
	Scripts     map[string]string `json:"scripts,omitempty"`
	RPM         map[string]string `json:"rpm"`
}

type packed struct {
	Src  string     `json:"src"`
	Dst  string     `json:"dst"`
	Type string     `json:"type,omitempty"`
	Info packedInfo `json:"file_info"`
}

type packedInfo struct {
	Mode  uint32 `json:"mode"`
	MTime string `json:"mtime"`
}

// packager makes packages of a release.
type packager struct{ *release }

// run makes a package of each program for each Linux platform, with nfpm, which
// internal/tools/nfpm pins.
func (r packager) run(ctx context.Context) error {
	for _, p := range r.programs {
		for _, platform := range r.platforms {
			if platform.OS != "linux" {
				continue
			}
			for _, format := range formats {
				if err := r.pack(ctx, p, platform, format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r packager) pack(ctx context.Context, p program, platform v1.Platform, format string) error {
	name := fmt.Sprintf("%s_%s_linux_%s.%s", p.name, r.number(), platform.Architecture, format)
	r.say("make %s", name)
	about, err := r.packing(p, platform, format)
	if err != nil {
		return err
	}
	content, err := json.Marshal(about) // JSON is YAML
	if err != nil {
		return err
	}
	config := filepath.Join(r.staging, "packing", name+".yaml")
	if err := r.stage(config, content); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=internal/tools/nfpm/go.mod", "nfpm",
		"package", "--config", config, "--packager", format, "--target", r.path(name))
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", name, err, said)
	}
	if err := os.Chmod(r.path(name), 0o644); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	return r.take(name, published.KindPackage, platform)
}

func (r packager) packing(p program, platform v1.Platform, format string) (nfpmPackage, error) {
	about := nfpmPackage{
		Name: p.name, Arch: platform.Architecture, Platform: "linux", Version: r.version, Section: "admin", Priority: "optional",
		Maintainer: "PipeOps <" + repository + ">", Homepage: repository, License: "MIT", Description: p.about,
		MTime: r.time.UTC().Format(time.RFC3339), RPM: map[string]string{"buildhost": "pipeops"},
	}
	at := func(src, dst string, mode uint32) {
		about.Contents = append(about.Contents, packed{Src: src, Dst: dst, Info: packedInfo{mode, about.MTime}})
	}
	at(r.bin(p, platform), "/usr/bin/"+p.name, 0o755)
	at(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/"+p.name+"/copyright", 0o644)
	if p.commands {
		pages, err := below(r.manual(p), ".")
		if err != nil {
			return nfpmPackage{}, err
		}
		for _, page := range pages {
			at(page.file, "/"+page.name, 0o644)
		}
	}
	return about, r.service(&about, format)
}

// service adds what runs the program as a service of the machine, if there are such files. An
// operator starts the service, once it has its settings: docs/cluster-owner/service.md and
// docs/operator/service.md.
func (r packager) service(about *nfpmPackage, format string) error {
	name := about.Name
	pattern, to, mode := "deployments/systemd/"+name+"*", "/usr/lib/systemd/system/", uint32(0o644)
	if format == "apk" { // of Alpine, which has OpenRC
		pattern, to, mode = "deployments/openrc/"+name, "/etc/init.d/", 0o755
	}
	units, err := filepath.Glob(filepath.Join(r.root, pattern))
	if err != nil || len(units) == 0 {
		return err
	}
	for _, from := range units {
		unit, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if filepath.Ext(from) != ".timer" {
			if unit, err = replaceOnce(unit, "/usr/local/bin/"+name, "/usr/bin/"+name); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
		}
		file := filepath.Join(r.staging, "packing", filepath.Base(from))
		if err := r.stage(file, unit); err != nil {
			return err
		}
		about.Contents = append(about.Contents, packed{Src: file, Dst: to + filepath.Base(from), Info: packedInfo{mode, about.MTime}})
	}
	settings := strings.TrimPrefix(name, "pipeops-") + ".env"
	about.Contents = append(about.Contents,
		packed{Src: filepath.Join(r.root, "deployments/service", settings), Dst: "/etc/pipeops/" + settings, Type: "config|noreplace", Info: packedInfo{0o600, about.MTime}})
	if name == "pipeops-agent" {
		about.Contents = append(about.Contents,
			packed{Src: filepath.Join(r.root, "deployments/config.yaml"), Dst: "/usr/share/doc/pipeops-agent/config.yaml", Info: packedInfo{0o644, about.MTime}})
	}
	if format == "apk" {
		return nil
	}
	reload := filepath.Join(r.staging, "packing", "reload")
	about.Scripts = map[string]string{"postinstall": reload, "postremove": reload}
	return r.stage(reload, []byte("#!/bin/sh\n[ ! -d /run/systemd/system ] || systemctl daemon-reload\n"))
}

// stage writes a file that packages are made of, unless it is there.
func (r *release) stage(file string, content []byte) error {
	if exists(file) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a build output that all users may read
		return err
	}
	return write(file, text(content))
}

// downloads is where the formulas find a version's files.
func (r *release) downloads(name string) string {
	return strings.Join([]string{repository, "releases/download", r.version, name}, "/")
}
