package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Limits on what is read, in bytes and entries: some ten times what a release has.
const (
	MaxManifest  = 256 << 10
	MaxSignature = 4 << 10
	MaxFile      = 4 << 30 // bytes of one published file
	maxFiles     = 512
	maxImages    = 64
)

// Kind is the purpose of a file.
type Kind string

// Kinds of files. Agent and Archive exist once for each platform.
const (
	KindAgent    Kind = "agent"    // the program pipeops-agent alone, not packed
	KindArchive  Kind = "archive"  // all programs of a platform, with docs and manifests
	KindImage    Kind = "image"    // container image, an OCI archive for all its platforms
	KindChart    Kind = "chart"    // Helm chart
	KindManifest Kind = "manifest" // for kubectl apply
	KindScript   Kind = "script"
	KindPackage  Kind = "package" // deb, rpm or apk of a program; what Homebrew and krew read
	KindSBOM     Kind = "sbom"    // CycloneDX
	KindVersion  Kind = "version"
	// KindProvenance is an in-toto Statement with SLSA's provenance.
	KindProvenance Kind = "provenance"
)

// Manifest lists what is published for a version.
type Manifest struct {
	Version string `json:"version"` // vMAJOR.MINOR.PATCH[-PRERELEASE]
	Commit  string `json:"commit"`
	// Expires is when the release is no longer offered or taken. What runs by then continues.
	Expires time.Time `json:"expires"`
	Files   []File    `json:"files"`
	Images  []Image   `json:"images"`
}

// File is one published file.
type File struct {
	Name   string `json:"name"`   // no folders
	SHA256 string `json:"sha256"` // 64 lower-case hexadecimal digits
	Size   int64  `json:"size"`   // bytes
	Kind   Kind   `json:"kind"`
	OS     string `json:"os,omitempty"`   // as Go's GOOS; empty for what fits all
	Arch   string `json:"arch,omitempty"` // as Go's GOARCH
}

// Image is one published container image.
type Image struct {
	Name   string `json:"name"`   // without tag, e.g. pipeops/agent
	Digest string `json:"digest"` // of the index of all its platforms: sha256:…
}

// CheckExpiry returns an error from the time on at which the release expires.
func (m *Manifest) CheckExpiry(now time.Time) error {
	if now.Before(m.Expires) {
		return nil
	}
	return fmt.Errorf("%s expired at %s (fix: offer a newer release, or have the maintainers sign this one again with a later time, docs/contributing/publishing.md)",
		m.Version, m.Expires.UTC().Format(time.RFC3339))
}

// File returns the file of a kind for a platform; os and arch are empty for a file for all
// platforms. For kinds with several files it returns the first: see Named.
func (m *Manifest) File(kind Kind, os, arch string) (File, bool) {
	for _, f := range m.Files {
		if f.Kind == kind && f.OS == os && f.Arch == arch {
			return f, true
		}
	}
	return File{}, false
}

// Named finds a file by its name.
func (m *Manifest) Named(name string) (File, bool) {
	for _, f := range m.Files {
		if f.Name == name {
			return f, true
		}
	}
	return File{}, false
}

// Image finds an image by its name.
func (m *Manifest) Image(name string) (Image, bool) {
	for _, i := range m.Images {
		if i.Name == name {
			return i, true
		}
	}
	return Image{}, false
}

// Encode returns the manifest as it is signed and published: the same bytes for the same manifest.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(text) >= MaxManifest {
		return nil, fmt.Errorf("%s: %d bytes are more than its readers take (%d)", ManifestName, len(text), MaxManifest)
	}
	return append(text, '\n'), nil
}

// Decode reads a manifest, without proof of its origin: see Trust.Open. Unknown fields are let
// through: an agent has to understand the manifests of releases to come.
func Decode(data []byte) (*Manifest, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	m := &Manifest{}
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("%s is not the JSON of a release: %w", ManifestName, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is something after its end", ManifestName)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

var (
	// versionPattern is semantic versioning without build metadata, which has no place in an
	// image's tag.
	versionPattern  = regexp.MustCompile(`^v(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8})){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	commitPattern   = regexp.MustCompile(`^[0-9A-Za-z-]{1,80}$`)
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	sumPattern      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	platformPattern = regexp.MustCompile(`^[a-z0-9]{1,16}$`)
	kindPattern     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	imagePattern    = regexp.MustCompile(`^[a-z0-9]+([._/:-]+[a-z0-9]+){0,20}$`)
	digestPattern   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// ValidVersion reports whether a release may be called so: vMAJOR.MINOR.PATCH,
// with -PRERELEASE or without.
func ValidVersion(version string) bool {
	return len(version) <= 64 && versionPattern.MatchString(version)
}

// Validate finds the first field that cannot be.
func (m *Manifest) Validate() error {
	if !ValidVersion(m.Version) {
		return malformed("version", m.Version, "vMAJOR.MINOR.PATCH[-PRERELEASE]")
	}
	if !commitPattern.MatchString(m.Commit) {
		return malformed("commit", m.Commit, "what git names a commit")
	}
	if m.Expires.IsZero() {
		return malformed("expires", "", "a time such as 2027-05-20T12:00:00Z, after which no agent installs the release")
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return malformed("files", fmt.Sprint(len(m.Files), " entries"), fmt.Sprint("1 to ", maxFiles))
	}
	if len(m.Images) > maxImages {
		return malformed("images", fmt.Sprint(len(m.Images), " entries"), fmt.Sprint("at most ", maxImages))
	}
	if err := m.validateFiles(); err != nil {
		return err
	}
	return m.validateImages()
}

func (m *Manifest) validateFiles() error {
	names := map[string]bool{}
	for i, f := range m.Files {
		at := func(field string) string { return fmt.Sprintf("files[%d].%s", i, field) }
		switch {
		case !namePattern.MatchString(f.Name):
			return malformed(at("name"), f.Name, "a file's name without folders")
		case names[f.Name]:
			return malformed(at("name"), f.Name, "each file once")
		case !sumPattern.MatchString(f.SHA256):
			return malformed(at("sha256"), f.SHA256, "64 lower-case hexadecimal digits")
		case f.Size < 0 || f.Size > MaxFile:
			return malformed(at("size"), fmt.Sprint(f.Size), fmt.Sprint("0 to ", int64(MaxFile)))
		case !kindPattern.MatchString(string(f.Kind)):
			return malformed(at("kind"), string(f.Kind), "what the file is, e.g. agent")
		case f.OS != "" && !platformPattern.MatchString(f.OS):
			return malformed(at("os"), f.OS, "a GOOS, e.g. linux")
		case f.Arch != "" && !platformPattern.MatchString(f.Arch):
			return malformed(at("arch"), f.Arch, "a GOARCH, e.g. amd64")
		}
		names[f.Name] = true
	}
	return nil
}

func (m *Manifest) validateImages() error {
	names := map[string]bool{}
	for i, image := range m.Images {
		at := func(field string) string { return fmt.Sprintf("images[%d].%s", i, field) }
		switch {
		case len(image.Name) > 255 || !imagePattern.MatchString(image.Name):
			return malformed(at("name"), image.Name, "an image's name without tag, e.g. pipeops/agent")
		case names[image.Name]:
			return malformed(at("name"), image.Name, "each image once")
		case !digestPattern.MatchString(image.Digest):
			return malformed(at("digest"), image.Digest, "sha256: and 64 lower-case hexadecimal digits")
		}
		names[image.Name] = true
	}
	return nil
}

func malformed(field, value, want string) error {
	if len(value) > 100 {
		value = value[:100] + "…"
	}
	return fmt.Errorf("%s: %s: %q (want: %s)", ManifestName, field, value, want)
}
