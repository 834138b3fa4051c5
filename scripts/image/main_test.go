package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

func TestBuildsArchiveForBothPlatforms(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for two architectures")
	}
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
}

func TestSaysWhatIsMissing(t *testing.T) {
	cmd := newCommand()
	cmd.SetArgs([]string{"--package", "./x", "--tag", "x:v1"})
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "output push")
}
