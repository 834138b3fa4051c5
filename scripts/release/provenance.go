package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

const (
	repository = "https://github.com/pipeops/pipeops-vm-agent"
	// buildType and builderID lead to the page that describes this build.
	buildType = repository + "/blob/main/docs/contributing/publishing.md#provenance"
	builderID = repository + "/blob/main/docs/contributing/publishing.md#make-a-release"
	// imageBase is what the images start from: they hold the program and the CAs, and no base
	// image.
	imageBase = "scratch"
	// rootsModule is where the CAs of the images come from.
	rootsModule = "golang.org/x/crypto/x509roots/fallback"
)

// attester describes how a release was made.
type attester struct{ *release }

// run writes from what, and how, the files and images of this release were made. It has
// neither a time nor a machine: a second build gives the same bytes.
func (r attester) run(context.Context) error {
	goVersion, dependencies, err := r.dependencies()
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(r.statement(goVersion, dependencies), "", "  ")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("pipeops_%s.provenance.json", r.number())
	return r.add(name, published.KindProvenance, anywhere, text(append(content, '\n')))
}

func (r attester) statement(goVersion string, dependencies []resource) statement {
	return statement{
		Type: statementType, Subject: r.subjects(), PredicateType: predicateType,
		Predicate: provenance{
			BuildDefinition: buildDefinition{
				BuildType: buildType, ExternalParameters: r.externalParameters(), ResolvedDependencies: dependencies,
				InternalParameters: internalParameters{
					GoVersion: goVersion, GoFlags: image.GoFlags, GoEnvironment: image.GoEnvironment, ImageBase: imageBase,
				},
			},
			RunDetails: runDetails{Builder: builder{ID: builderID, Version: map[string]string{"go": goVersion}}},
		},
	}
}

func (r attester) externalParameters() externalParameters {
	p := externalParameters{
		Source: r.source(), Version: r.version, Commit: r.commit, ReleaseKeys: r.trusted, ControlPlaneURL: r.controlPlane,
	}
	for _, platform := range r.platforms {
		p.Platforms = append(p.Platforms, platform.String())
	}
	return p
}

// source names the tag that was built, as SPDX names a place in git.
func (r attester) source() string { return "git+" + repository + "@refs/tags/" + r.version }

// subjects are the files so far, and the images.
func (r attester) subjects() (subjects []resource) {
	for _, f := range r.manifest.Files {
		subjects = append(subjects, resource{Name: f.Name, Digest: map[string]string{"sha256": f.SHA256}})
	}
	for _, i := range r.manifest.Images {
		subjects = append(subjects, resource{Name: i.Name, Digest: map[string]string{"sha256": strings.TrimPrefix(i.Digest, "sha256:")}})
	}
	slices.SortFunc(subjects, func(a, b resource) int { return cmp.Compare(a.Name, b.Name) })
	return subjects
}

// dependencies are the source, Go, and each module in a program or an image.
func (r attester) dependencies() (goVersion string, all []resource, err error) {
	modules := map[string]*debug.Module{}
	for _, p := range r.programs {
		version, linked, err := r.linked(p)
		if err != nil {
			return "", nil, err
		}
		goVersion = cmp.Or(version, goVersion)
		for _, m := range linked {
			modules[m.Path] = m
		}
	}
	if m := ownModule(rootsModule); m != nil {
		modules[m.Path] = m
	}
	for _, m := range modules {
		dependency, err := moduleResource(m)
		if err != nil {
			return "", nil, err
		}
		all = append(all, dependency)
	}
	slices.SortFunc(all, func(a, b resource) int { return cmp.Compare(a.URI, b.URI) })
	source := resource{URI: r.source()}
	if commitPattern.MatchString(r.commit) {
		source.Digest = map[string]string{"gitCommit": r.commit}
	}
	return goVersion, append([]resource{source, {Name: "go", URI: packageURL("std", numberOf(goVersion))}}, all...), nil
}

// ownModule returns a module of this program; nil if it has none of that path.
func ownModule(path string) *debug.Module {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return used(m)
		}
	}
	return nil
}

// moduleResource names a module with the checksum of go.sum, which in-toto writes in hexadecimal.
func moduleResource(m *debug.Module) (resource, error) {
	found := resource{URI: packageURL(m.Path, m.Version)}
	sum, hashed := strings.CutPrefix(m.Sum, "h1:")
	if !hashed { // a module in a local folder: it is part of the source
		return found, nil
	}
	digest, err := base64.StdEncoding.DecodeString(sum)
	if err != nil {
		return resource{}, fmt.Errorf("provenance: %s: checksum %q: %w", m.Path, m.Sum, err)
	}
	found.Digest = map[string]string{"dirHash": hex.EncodeToString(digest)}
	return found, nil
}

// commitPattern matches a full commit ID, which is unambiguous.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// checkCommit refuses to sign a release whose provenance could name no commit.
func checkCommit(commit string) error {
	if commitPattern.MatchString(commit) {
		return nil
	}
	return fmt.Errorf("--commit: %s is not a full commit ID, which a signed release names (fix: --commit \"$(git rev-parse HEAD)\")", commit)
}
