package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
)

// Annotations by which an archive names what it holds: the first is the OCI
// specification's, the second containerd's.
const (
	AnnotationRefName   = "org.opencontainers.image.ref.name"
	AnnotationImageName = "io.containerd.image.name"
)

// WriteLayout writes one image index as an OCI image layout into a directory,
// which must not exist or be empty.
func WriteLayout(dir, ref string, index v1.ImageIndex) error {
	path, err := layout.Write(dir, emptyIndex())
	if err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	names := map[string]string{AnnotationRefName: ref, AnnotationImageName: ref}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	return nil
}

// WriteArchive writes one image index as a tar of an OCI image layout, which
// `ctr images import`, `k3s ctr images import`, `docker load` and
// `podman load` read.
func WriteArchive(file, ref string, index v1.ImageIndex) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".image-layout-")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := WriteLayout(dir, ref, index); err != nil {
		return err
	}
	err = atomicfile.Fill(file, func(f *os.File) error { return errors.Join(tarDirectory(f, dir), f.Chmod(0o644)) })
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

// tarDirectory writes a reproducible tar: fs.WalkDir walks in lexical order, and the headers
// contain neither owner nor time.
func tarDirectory(w io.Writer, dir string) error {
	archive := tar.NewWriter(w)
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: Epoch}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		return copyFile(archive, root, name)
	})
	return errors.Join(err, archive.Close())
}

func copyFile(w io.Writer, root fs.FS, name string) (err error) {
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(w, file)
	return err
}
