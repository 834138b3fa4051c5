package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

const ref = "registry.example.com/team/app:v1"

// testSpec writes its inputs again, so that their times and places differ.
func testSpec(t *testing.T, arch string) Spec {
	t.Helper()
	dir := t.TempDir()
	binary, bundle := filepath.Join(dir, "binary"), filepath.Join(dir, "bundle.crt")
	require.NoError(t, os.WriteFile(binary, []byte("\x7fELF "+arch), 0o600))
	require.NoError(t, os.WriteFile(bundle, []byte("certificates"), 0o600))
	return Spec{
		Binary: binary, Name: "app", CABundle: bundle,
		Platform: v1.Platform{OS: "linux", Architecture: arch},
		Labels:   map[string]string{LabelVersion: "v1"},
	}
}

func buildIndex(t *testing.T) v1.ImageIndex {
	t.Helper()
	var images []v1.Image
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := Build(testSpec(t, arch))
		require.NoError(t, err)
		images = append(images, img)
	}
	index, err := Index(images...)
	require.NoError(t, err)
	return index
}

func TestBuild_NonRoot(t *testing.T) {
	for _, uncompressed := range []bool{false, true} {
		spec := testSpec(t, "amd64")
		spec.Uncompressed = uncompressed
		img, err := Build(spec)
		require.NoError(t, err)
		layers, err := img.Layers()
		require.NoError(t, err)
		if !uncompressed { // the check takes every layer for compressed
			require.NoError(t, validate.Layer(layers[0]))
		}
		file, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, "65532:65532", file.Config.User)
		require.Equal(t, []string{"/app"}, file.Config.Entrypoint)
		require.Equal(t, "v1", file.Config.Labels[LabelVersion])
		require.Equal(t, "linux/amd64", file.Platform().String())
		require.True(t, file.Created.Equal(Epoch))
	}
}

func TestBuild_Layer(t *testing.T) {
	img, err := Build(testSpec(t, "amd64"))
	require.NoError(t, err)
	got := map[string]*tar.Header{}
	content := map[string]string{}
	files := mutate.Extract(img)
	defer func() { require.NoError(t, files.Close()) }()
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(reader)
		require.NoError(t, err)
		got[header.Name], content[header.Name] = header, string(data)
	}
	require.EqualValues(t, 0o1777, got["tmp"].Mode)
	require.EqualValues(t, 0o755, got["app"].Mode)
	require.Equal(t, "\x7fELF amd64", content["app"])
	require.Equal(t, "certificates", content["etc/ssl/certs/ca-certificates.crt"])
	require.Contains(t, content["etc/passwd"], "nonroot:x:65532:65532:")
	for name, header := range got {
		require.True(t, header.ModTime.Equal(Epoch), name)
	}
}

func TestBuild_DataDir(t *testing.T) {
	spec := testSpec(t, "amd64")
	spec.DataDir = "/var/lib/app"
	content, err := layerContent(spec)
	require.NoError(t, err)
	modes, owners := map[string]int64{}, map[string]int{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		modes[header.Name], owners[header.Name] = header.Mode, header.Uid
	}
	require.Equal(t, int64(0o755), modes["var/lib/"])
	require.Equal(t, 0, owners["var/lib/"])
	require.Equal(t, int64(0o700), modes["var/lib/app/"])
	require.Equal(t, UserID, owners["var/lib/app/"])
}

func TestBuild_NoCABundle(t *testing.T) {
	spec := testSpec(t, "amd64")
	spec.CABundle = ""
	_, err := Build(spec)
	require.NoError(t, err)
	spec.CABundle = filepath.Join(t.TempDir(), "missing")
	_, err = Build(spec)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestArchive_RoundTrip(t *testing.T) {
	index := buildIndex(t)
	want, err := index.Digest()
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	require.NoError(t, WriteArchive(file, ref, index))
	layout := filepath.Join(dir, "layout")
	require.NoError(t, WriteLayout(layout, ref, index))
	for _, path := range []string{file, layout} {
		archive, err := Open(path)
		require.NoError(t, err)
		require.Len(t, archive.Images, 1)
		require.Equal(t, ref, archive.Images[0].Ref)
		got, err := archive.Images[0].Index.Digest()
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, validate.Index(archive.Images[0].Index))
		require.NoError(t, archive.Close())
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "temporary files are left")
}

func TestArchive_Reproducible(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		file := filepath.Join(t.TempDir(), "image.tar")
		require.NoError(t, WriteArchive(file, ref, buildIndex(t)))
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		archives[i] = content
	}
	require.True(t, bytes.Equal(archives[0], archives[1]))
}

func TestOpen_DockerArchive(t *testing.T) {
	img, err := Build(testSpec(t, "amd64"))
	require.NoError(t, err)
	tag, err := name.NewTag(ref)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "saved.tar")
	require.NoError(t, tarball.WriteToFile(file, tag, img))
	archive, err := Open(file)
	require.NoError(t, err)
	require.Len(t, archive.Images, 1)
	require.Equal(t, ref, archive.Images[0].Ref)
	config, err := archive.Images[0].Image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", config.Config.User)
	require.NoError(t, archive.Close())
}

func TestOpen_RefusesOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte("no tar at all"), 0o600))
	_, err := Open(file)
	require.Error(t, err)
	_, err = Open(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "not an OCI image layout")
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	index := buildIndex(t)
	want, err := index.Digest()
	require.NoError(t, err)
	target := strings.TrimPrefix(server.URL, "http://") + "/team/app:v1"
	require.NoError(t, Push(t.Context(), target, Named{Index: index}, PushOptions{PlainHTTP: true}))
	parsed, err := name.ParseReference(target)
	require.NoError(t, err)
	got, err := remote.Head(parsed)
	require.NoError(t, err)
	require.Equal(t, want, got.Digest)
}

// FuzzOpen: whatever the file, Open neither panics nor leaves its directory
// behind.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("no tar"))
	for _, entry := range []string{"oci-layout", "index.json", "manifest.json", "../escape", "/absolute"} {
		var buf bytes.Buffer
		writer := tar.NewWriter(&buf)
		for _, name := range []string{"oci-layout", entry} {
			require.NoError(f, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 2}))
			if _, err := writer.Write([]byte("{}")); err != nil {
				f.Fatal(err)
			}
		}
		require.NoError(f, writer.Close())
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		file := filepath.Join(t.TempDir(), "file.tar")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		archive, err := Open(file)
		if err == nil {
			require.NoError(t, archive.Close())
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}
