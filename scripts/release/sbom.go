package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// inventory lists what is in the programs.
type inventory struct{ *release }

// run writes one CycloneDX document for each program: the modules that are
// really linked into it, as the Go linker noted them. The modules are taken from
// the first platform's build and joined by those of the others.
func (r inventory) run(context.Context) error {
	for _, p := range r.programs {
		goVersion, modules, err := r.linked(p)
		if err != nil {
			return err
		}
		if goVersion == "" {
			continue
		}
		file := fmt.Sprintf("%s_%s.cdx.json", p.name, r.number())
		if err := r.add(file, published.KindSBOM, anywhere, func(w io.Writer) error {
			encoder := cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON)
			return encoder.SetPretty(true).Encode(r.bom(p, goVersion, modules))
		}); err != nil {
			return err
		}
	}
	return nil
}

// linked returns Go's version and the modules in a program, on all platforms together. The version
// is empty for a program that is built for none of them.
func (r *release) linked(p program) (goVersion string, modules map[string]*debug.Module, err error) {
	modules = map[string]*debug.Module{}
	for _, platform := range r.platforms {
		if !p.on(platform) {
			continue
		}
		info, err := buildinfo.ReadFile(r.bin(p, platform))
		if err != nil {
			return "", nil, fmt.Errorf("modules of %s: %w", p.name, err)
		}
		goVersion = info.GoVersion
		for _, m := range info.Deps {
			modules[m.Path] = used(m)
		}
	}
	return goVersion, modules, nil
}

// used returns the module that takes the place of another one, if any does.
func used(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

func (r inventory) bom(p program, goVersion string, modules map[string]*debug.Module) *cyclonedx.BOM {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: p.name, Version: r.version, BOMRef: p.name},
	}
	components := make([]cyclonedx.Component, 0, 1+len(modules))
	components = append(components, library("std", numberOf(goVersion)))
	for _, m := range modules {
		components = append(components, library(m.Path, m.Version))
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &components
	return bom
}

// numberOf returns the number of a Go version such as go1.26.0.
func numberOf(goVersion string) string { return strings.TrimPrefix(goVersion, "go") }

// packageURL names a Go module (https://github.com/package-url/purl-spec).
func packageURL(path, version string) string { return fmt.Sprintf("pkg:golang/%s@%s", path, version) }

func library(path, version string) cyclonedx.Component {
	url := packageURL(path, version)
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url, BOMRef: url}
}
