package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

func TestImage_BothPlatforms(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for two architectures")
	}
	require.NoError(t, programs.Program{Package: "./test/apps/pause"}.Depend(t.Context()))
	file := filepath.Join(t.TempDir(), "dist", "image.tar")
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{
		"--package", "../../test/apps/pause", "--tag", "pipeops/pause:v1.2.3", "--output", file, "--revision", "abc",
	})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "pipeops/pause:v1.2.3@sha256:")

	archive, err := image.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, archive.Close()) }()
	require.Len(t, archive.Images, 1)
	require.Equal(t, "pipeops/pause:v1.2.3", archive.Images[0].Ref)
	index := archive.Images[0].Index
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		img, err := index.Image(descriptor.Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", config.Config.Labels[image.LabelVersion])
		require.Equal(t, "abc", config.Config.Labels[image.LabelRevision])
		require.Equal(t, []string{"/pipeops-pause"}, config.Config.Entrypoint)
	}
	require.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	t.Run("push", func(t *testing.T) { pushKeepsTheDigest(t, file, index) })
}

// pushKeepsTheDigest uploads an archive to a registry, go-containerregistry's own.
func pushKeepsTheDigest(t *testing.T, file string, index v1.ImageIndex) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/pipeops/agent:v1.2.3"
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"push", file, ref, "--plain-http"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	want, err := index.Digest()
	require.NoError(t, err)
	require.Equal(t, "pushed "+ref+"@"+want.String()+"\n", out.String())
	parsed, err := name.ParseReference(ref, name.Insecure)
	require.NoError(t, err)
	there, err := remote.Head(parsed)
	require.NoError(t, err)
	require.Equal(t, want, there.Digest)
}

func TestImage_MissingFlags(t *testing.T) {
	cmd := newCommand()
	cmd.SetArgs([]string{"--package", "./x", "--tag", "x:v1"})
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "output push")
}
