package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var stamp = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// small makes a release of a program that compiles in no time.
func small(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	r := release{
		version: "v1.2.3", commit: "abc", root: "../..", dir: filepath.Join(t.TempDir(), "v1.2.3"),
		programs:  []program{{name: "pause", pkg: "./test/apps/pause", image: "test/pause"}},
		files:     []string{"LICENSE", "deployments"},
		platforms: []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}},
		time:      stamp, out: &out,
	}
	require.NoError(t, r.make(t.Context()), out.String())
	return r.dir
}

func TestTwoReleasesOfACommitAreTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for two architectures")
	}
	first, second := small(t), small(t)
	sums, err := os.ReadFile(filepath.Join(first, "checksums.txt"))
	require.NoError(t, err)
	again, err := os.ReadFile(filepath.Join(second, "checksums.txt"))
	require.NoError(t, err)
	assert.Equal(t, string(sums), string(again))
	for _, name := range []string{"pipeops_1.2.3_linux_amd64.tar.gz", "pipeops_1.2.3_linux_arm64.tar.gz", "pause-image_1.2.3.tar", "pause_1.2.3.cdx.json"} {
		assert.Contains(t, string(sums), "  "+name+"\n")
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = first
	said, err := check.CombinedOutput()
	require.NoError(t, err, "%s", said)
	bom, err := os.ReadFile(filepath.Join(first, "pause_1.2.3.cdx.json"))
	require.NoError(t, err)
	assert.Contains(t, string(bom), `"purl": "pkg:golang/std@1.`)

	modes := unpackTar(t, filepath.Join(first, "pipeops_1.2.3_linux_amd64.tar.gz"))
	assert.Equal(t, int64(0o755), modes["pipeops_1.2.3_linux_amd64/pause"])
	assert.Equal(t, int64(0o755), modes["pipeops_1.2.3_linux_amd64/deployments/openrc/pipeops-agent"])
	assert.Equal(t, int64(0o644), modes["pipeops_1.2.3_linux_amd64/deployments/service.yaml"])
	for name := range modes {
		assert.False(t, strings.HasSuffix(name, ".go"), name)
	}
}

// unpackTar answers the modes of an archive's files.
func unpackTar(t *testing.T, file string) map[string]int64 {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	uncompressed, err := gzip.NewReader(f)
	require.NoError(t, err)
	modes := map[string]int64{}
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}
		require.NoError(t, err)
		assert.Equal(t, stamp, header.ModTime.UTC())
		modes[header.Name] = header.Mode
	}
}

func TestWindowsGetsAZip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.exe")
	require.NoError(t, os.WriteFile(file, []byte("program"), 0o600))
	var first, second bytes.Buffer
	entries := []entry{{name: "a.exe", file: file, mode: 0o755}}
	require.NoError(t, zipped(&first, "top", entries, stamp))
	require.NoError(t, zipped(&second, "top", entries, stamp))
	assert.Equal(t, first.Bytes(), second.Bytes())
	archive, err := zip.NewReader(bytes.NewReader(first.Bytes()), int64(first.Len()))
	require.NoError(t, err)
	require.Len(t, archive.File, 1)
	assert.Equal(t, "top/a.exe", archive.File[0].Name)
}

func TestWhatIsThereIsNotOverwritten(t *testing.T) {
	cmd := newCommand()
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--version", "v1", "--output", t.TempDir(), "--root", "../.."})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "is there already")
	cmd.SetArgs([]string{"--version", "v1", "--output", "x", "--platform", "linux"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "OS/ARCHITECTURE")
}
