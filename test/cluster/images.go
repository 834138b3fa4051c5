package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// The credentials that are required to pull images whose names begin with private/.
const (
	PullUser     = node.PullUser
	PullPassword = node.PullPassword
)

// LoadImage makes an image available to pods under the name ref, from any registry. An image that
// is loaded again under the same name replaces the old one for pods that always pull. Others keep
// what the node already has.
func (c *Cluster) LoadImage(ctx context.Context, ref string, img v1.Image) error {
	return c.push(ctx, image.Named{Ref: ref, Image: img})
}

// LoadIndex is like LoadImage for an image of several platforms.
func (c *Cluster) LoadIndex(ctx context.Context, ref string, index v1.ImageIndex) error {
	return c.push(ctx, image.Named{Ref: ref, Index: index})
}

// LoadFile loads the images in a tar (of an OCI image layout, or by `docker save`) or in the
// directory of an OCI image layout. It uses the names in the file, or ref if that is not empty.
func (c *Cluster) LoadFile(ctx context.Context, file, ref string) (err error) {
	archive, err := image.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	if ref != "" && len(archive.Images) != 1 {
		return fmt.Errorf("%s holds %d images: one name does not do for them", file, len(archive.Images))
	}
	for _, named := range archive.Images {
		if ref != "" {
			named.Ref = ref
		}
		if named.Ref == "" {
			return fmt.Errorf("%s does not say the name of its image: give one", file)
		}
		if err := c.push(ctx, named); err != nil {
			return err
		}
	}
	return nil
}

// push uploads to the registry, which identifies repositories only by path.
func (c *Cluster) push(ctx context.Context, named image.Named) error {
	if c.state.ControlPlaneOnly {
		return fmt.Errorf("load image %s: cluster %s has no node", named.Ref, c.Name)
	}
	ref, err := name.ParseReference(named.Ref)
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	separator := ":"
	if _, digest := ref.(name.Digest); digest {
		separator = "@"
	}
	target := c.Registry() + "/" + ref.Context().RepositoryStr() + separator + ref.Identifier()
	transport := &http.Transport{ // no proxy
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}
	defer transport.CloseIdleConnections()
	options := image.PushOptions{PlainHTTP: true, Transport: transport}
	if err := image.Push(ctx, target, named, options); err != nil {
		return fmt.Errorf("load image %s into cluster %s: %w", named.Ref, c.Name, err)
	}
	return nil
}

// Program is a Go program, of this repository or in a module that it pins, that runs as a
// container.
type Program struct {
	// Package is its main package, such as ./cmd/agent.
	Package string
	// Name is the executable's name; the last part of Package if empty.
	Name string
	// Ref is the image's name. Without a tag it gets one that depends on the content, so that a
	// changed program is another image.
	Ref string
	// Version is the version of the build; that of the source if empty.
	Version string
	LDFlags string
	// Module is the folder of another module than the repository's, from the top of that.
	Module string
	// Tags are build tags, with commas between.
	Tags   string
	Labels map[string]string
}

// LoadProgram builds a program and its image, and loads the image. It returns the image's full
// name.
func (c *Cluster) LoadProgram(ctx context.Context, program Program) (ref string, err error) {
	img, err := BuildProgram(ctx, program)
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(program.Ref, name.WithDefaultTag(""))
	if err != nil {
		return "", fmt.Errorf("load %s: %w", program.Package, err)
	}
	ref = program.Ref
	if tag.TagStr() == "" {
		digest, err := img.Digest()
		if err != nil {
			return "", fmt.Errorf("load %s: %w", program.Package, err)
		}
		ref += ":" + digest.Hex[:12]
	}
	return ref, c.LoadImage(ctx, ref, img)
}

// LoadApp builds one of the programs in test/apps and loads it. It returns the image's full name.
func (c *Cluster) LoadApp(ctx context.Context, app string) (ref string, err error) {
	return c.LoadProgram(ctx, Program{Package: "./test/apps/" + app, Ref: "apps.test/" + app})
}

// BuildProgram builds a program's image for this machine's architecture.
func BuildProgram(ctx context.Context, program Program) (v1.Image, error) {
	if program.Name == "" {
		program.Name = path.Base(program.Package)
	}
	build := programs.Program{Package: program.Package, Name: program.Name, Version: program.Version, LDFlags: program.LDFlags, Module: program.Module, Tags: program.Tags}
	binary, err := build.Build(ctx)
	if err != nil {
		return nil, err
	}
	return image.Build(image.Spec{
		Binary: binary, Name: program.Name, Labels: program.Labels, CABundle: image.SystemCABundle(),
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Uncompressed: true,
	})
}
