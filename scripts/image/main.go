// Command image builds the container image of one of this repository's programs
// where there is no container engine:
//
//	go run ./scripts/image --package ./cmd/agent --tag pipeops/agent:v1.2.3 --output dist/agent-image.tar
//	go run ./scripts/image --package ./cmd/agent --tag registry.example.com/agent:v1.2.3 --push
//	go run ./scripts/image push dist/agent-image.tar registry.example.com/agent:v1.2.3
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

type options struct {
	pkg, tag, output, push, ldflags   string
	version, revision, source, binary string
	dataDir                           string
	platforms                         []string
	plainHTTP                         bool
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "image --package ./cmd/agent --tag REPOSITORY:TAG (--output FILE.tar | --push REF)",
		Short: "Build a multi-platform OCI image of a Go program, without a container engine",
		Example: `  go run ./scripts/image --package ./cmd/agent --tag pipeops/agent:v1.2.3 --output dist/agent-image.tar
  go run ./scripts/image --package ./cmd/agent --tag pipeops/agent:v1.2.3 --push localhost:5000/agent:v1.2.3 --plain-http`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.pkg, "package", "", "main package to build, e.g. ./cmd/agent")
	f.StringVar(&o.tag, "tag", "", "name of the image within the archive, e.g. pipeops/agent:v1.2.3")
	f.StringVar(&o.output, "output", "", "write a tar of an OCI image layout to this file")
	f.StringVar(&o.push, "push", "", "push the image to this reference")
	f.BoolVar(&o.plainHTTP, "plain-http", false, "push without TLS")
	f.StringSliceVar(&o.platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "platforms to build for")
	f.StringVar(&o.ldflags, "ldflags", "", "linker flags in addition to -s -w, e.g. -X main.version=v1.2.3")
	f.StringVar(&o.binary, "name", "", "name of the executable in the image (default pipeops-LAST_PATH_ELEMENT)")
	f.StringVar(&o.dataDir, "data-dir", "", "directory in the image that is the program's user's own, for a volume")
	f.StringVar(&o.version, "version", "", "version label (default: the tag's)")
	f.StringVar(&o.revision, "revision", "", "revision label: the commit")
	f.StringVar(&o.source, "source", "https://github.com/pipeops/pipeops-vm-agent", "source label")
	for _, required := range []string{"package", "tag"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	cmd.MarkFlagsOneRequired("output", "push")
	cmd.AddCommand(newPush())
	return cmd
}

func (o *options) run(cmd *cobra.Command) (err error) {
	tmp, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	index, err := o.build(cmd.Context(), tmp)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if o.output != "" {
		if err := os.MkdirAll(filepath.Dir(o.output), 0o755); err != nil { //nolint:gosec // a build output that all users may read
			return err
		}
		if err := image.WriteArchive(o.output, o.tag, index); err != nil {
			return err
		}
		cmd.Printf("%s: %s@%s\n", o.output, o.tag, digest)
	}
	if o.push != "" {
		if err := image.Push(cmd.Context(), o.push, image.Named{Index: index}, image.PushOptions{PlainHTTP: o.plainHTTP}); err != nil {
			return err
		}
		cmd.Printf("pushed %s@%s\n", o.push, digest)
	}
	return nil
}

func (o *options) build(ctx context.Context, tmp string) (v1.ImageIndex, error) {
	var images []v1.Image
	for _, text := range o.platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return nil, fmt.Errorf("--platform %s: %w", text, err)
		}
		binary := filepath.Join(tmp, strings.ReplaceAll(text, "/", "-"))
		build := image.GoBuild{Package: o.pkg, Output: binary, LDFlags: o.ldflags, Platform: *platform}
		if err := build.Run(ctx); err != nil {
			return nil, err
		}
		img, err := image.Build(image.Spec{
			Binary: binary, Name: o.name(), Platform: *platform,
			Labels: o.labels(), CABundle: image.SystemCABundle(), DataDir: o.dataDir,
		})
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	return image.Index(images...)
}

func (o *options) name() string {
	return cmp.Or(o.binary, "pipeops-"+path.Base(filepath.ToSlash(o.pkg)))
}

func (o *options) labels() map[string]string {
	version := o.version
	if version == "" {
		version = o.tag[strings.LastIndexByte(o.tag, ':')+1:]
	}
	labels := map[string]string{
		image.LabelTitle: o.name(), image.LabelVersion: version,
		image.LabelSource: o.source, image.LabelRevision: o.revision,
	}
	if o.revision == "" {
		delete(labels, image.LabelRevision)
	}
	return labels
}
