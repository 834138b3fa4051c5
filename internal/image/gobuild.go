package image

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The flags and the environment of each build, in addition to what it is built for. A release's
// provenance names them.
var (
	GoFlags       = []string{"-trimpath", "-buildvcs=false"}
	GoEnvironment = []string{"CGO_ENABLED=0", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0"}
)

// GoBuild describes which Go program to compile, for an image or a release.
type GoBuild struct {
	// Dir is a directory within the module, or empty for the current one.
	Dir string
	// Package is the import path or ./path of the main package.
	Package string
	// Output is the file to write.
	Output string
	// LDFlags are added to -s -w.
	LDFlags string
	// Flags are further ones of `go build`.
	Flags []string
	// Env is added to this process's environment.
	Env []string
	// Platform is what to build for; what it leaves out is Linux, and this
	// machine's architecture.
	Platform v1.Platform
}

// Run compiles the program statically, and without traces of the build machine: a
// clone, a copy without git and another machine's default instruction set give the
// same bytes.
func (b GoBuild) Run(ctx context.Context) error {
	args := slices.Concat([]string{"build"}, GoFlags, []string{"-ldflags", strings.TrimSpace("-s -w " + b.LDFlags)}, b.Flags)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", b.Output, b.Package)...)
	cmd.Dir = b.Dir
	system := cmp.Or(b.Platform.OS, "linux")
	cmd.Env = append(slices.Concat(os.Environ(), b.Env, GoEnvironment), "GOOS="+system)
	if b.Platform.Architecture != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+b.Platform.Architecture)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", b.Package, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
