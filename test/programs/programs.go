// Package programs compiles the Go programs that tests run: once for all tests, with the flags of a
// release, into a folder that is named by the program's content.
//
// From then on the test depends on all of the program's sources, for Go's test cache too. A change
// of the program makes the test run again, and a change of its tests does not.
package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// Program describes what to compile. A different Version, like any other difference, makes another
// program to link: tests that do not care share the source's version.
type Program struct {
	// Package is its main package, as ./cmd/agent.
	Package string
	// Name is the file's; the last part of Package when empty.
	Name string
	// Version is its main.version; that of the source, dev, when empty.
	Version string
	// LDFlags are added to those of the version.
	LDFlags string
	// Module is the folder of another module than the repository's, from the top of that.
	Module string
	// Tags are build tags, with commas between.
	Tags string
}

// dev is main.version in the sources.
const dev = "dev"

// The product's programs.
var (
	Agent        = Program{Package: "./cmd/agent", Name: "pipeops-agent"}
	ControlPlane = Program{Package: "./cmd/controlplane", Name: "pipeops-controlplane"}
	Runner       = Program{Package: "./cmd/runner", Name: "pipeops-runner"}
)

// Tools of others that tests use. Modules of their own keep their dependencies out of the
// product's; test/setup compiles them beforehand.
var (
	Helm   = Program{Package: "helm.sh/helm/v4/cmd/helm", Module: "test/chart/tools"}
	Helm3  = Program{Package: "helm.sh/helm/v3/cmd/helm", Name: "helm3", Module: "test/chart/helm3"}
	Sops   = Program{Package: "github.com/getsops/sops/v3/cmd/sops", Module: "test/sops"}
	Cosign = Program{Package: "github.com/sigstore/cosign/v3/cmd/cosign", Module: "test/cosign"}
	// Act runs GitHub's workflows.
	Act         = Program{Package: "github.com/nektos/act", Module: "test/act"}
	Kubeconform = Program{Package: "github.com/yannh/kubeconform/cmd/kubeconform", Module: "test/chart/tools"}
	H2spec      = Program{Package: "github.com/summerwind/h2spec/cmd/h2spec", Module: "test/conformance/tools"}
	GRPCClient  = Program{Package: "google.golang.org/grpc/interop/client", Name: "grpcclient", Module: "test/conformance/tools"}
	GRPCServer  = Program{Package: "./grpcserver", Module: "test/conformance/tools"}
	// Esbuild compiles TypeScript, and does not check types.
	Esbuild = Program{Package: "github.com/evanw/esbuild/cmd/esbuild", Module: "test/e2e/tools"}
	// Dex is an OpenID provider, with a main package of the test's own.
	Dex = Program{Package: ".", Name: "dex", Module: "test/dex/program"}
	// Gitea is without its pages, which npm would make.
	Gitea = Program{Package: "code.gitea.io/gitea", Module: "test/gitea/program"}
	// Promtool is without service discovery, which is most of it.
	Promtool     = Program{Package: "github.com/prometheus/prometheus/cmd/promtool", Module: "test/upstream/prometheus", Tags: "remove_all_sd"}
	Prometheus   = Program{Package: "github.com/prometheus/prometheus/cmd/prometheus", Module: "test/upstream/prometheus", Tags: "remove_all_sd,enable_kubernetes_sd"}
	Alertmanager = Program{Package: "github.com/prometheus/alertmanager/cmd/alertmanager", Module: "test/upstream/alertmanager"}
)

// At returns the program as another version.
func (p Program) At(version string) Program {
	p.Version = version
	return p
}

// Build returns the program's path. It is compiled when no test has done that of the same sources,
// and stays there for as long as this process lives.
func (p Program) Build(ctx context.Context) (string, error) {
	if p.Name == "" {
		p.Name = path.Base(p.Package)
	}
	if file, found := built.Load(p); found {
		return file.(string), nil
	}
	file, err := p.build(ctx)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", p.Package, err)
	}
	built.Store(p, file)
	return file, nil
}

// Depend makes the test depend on the program's sources, for a test whose subject compiles the
// program.
func (p Program) Depend(ctx context.Context) error {
	list, err := p.sources(ctx)
	if err != nil {
		return err
	}
	_, err = list.sum()
	return err
}

// built are the paths of the programs that this process has asked for: all of a test run is of the
// same sources.
var built sync.Map

func (p Program) build(ctx context.Context) (file string, err error) {
	s, err := openStore(ctx, p.request())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if list, err := s.sources(); err == nil {
		if file, err := s.find(list, p.Name); file != "" || err != nil {
			return file, err
		}
	}
	list, err := p.sources(ctx)
	if err != nil {
		return "", err
	}
	if file, err := s.find(list, p.Name); file != "" || err != nil {
		return file, err
	}
	return p.compile(ctx, s, list)
}

// compile compiles the program of these sources. They must not change meanwhile.
func (p Program) compile(ctx context.Context, s *store, list sources) (file string, err error) {
	before, err := list.sum()
	if err != nil {
		return "", err
	}
	made, remove, err := s.making()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	build := image.GoBuild{Dir: p.dir(), Package: p.Package, Output: made, LDFlags: p.ldflags(), Flags: p.flags(), Env: environ}
	if err := build.Run(ctx); err != nil {
		return "", err
	}
	if after, err := list.sum(); err != nil || after != before {
		return "", errors.Join(errors.New("its sources changed meanwhile; try again"), err)
	}
	return s.add(list, before, made, p.Name)
}

// environ keeps what a developer has set for other builds out of this one.
var environ = []string{"GOFLAGS=", "GOWORK=off"}

func (p Program) dir() string { return filepath.Join(inputs.Root(), filepath.FromSlash(p.Module)) }

func (p Program) ldflags() string {
	if p.Version == "" || p.Version == dev {
		return strings.TrimSpace(p.LDFlags)
	}
	return strings.TrimSpace("-X main.version=" + p.Version + " " + p.LDFlags)
}

// flags returns the flags that make the product's programs record their line coverage if requested:
// as documented by Go, they write it into $GOCOVERDIR. A test's own program in a pod would warn on
// its terminal that there is none.
func (p Program) flags() []string {
	flags := []string{"-tags=" + p.Tags}
	if p.Module == "" && strings.HasPrefix(p.Package, "./cmd/") && os.Getenv("GOCOVERDIR") != "" {
		flags = append(flags, "-cover", "-coverpkg=./...")
	}
	return flags
}

// request returns all that is asked for but the program's name.
func (p Program) request() []string {
	return append(p.flags(), p.Package, p.ldflags(), cmp.Or(p.Module, "."))
}
