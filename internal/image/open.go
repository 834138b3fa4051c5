package image

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Archive is an opened file or directory of images. Close it when the images
// have been used.
type Archive struct {
	Images []Named
	tmp    string
}

// Named is an image, or an index of images for several platforms, with its name in the archive
// (empty if it has none). One of Image and Index is set.
type Named struct {
	Ref   string
	Image v1.Image
	Index v1.ImageIndex
}

// Open reads the output of `docker save`, `podman save`, `ctr images export` and of this package: a
// tar or a directory of an OCI image layout, or Docker's own archive format.
func Open(path string) (*Archive, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	if info.IsDir() {
		return openLayout(path, "")
	}
	isLayout, err := tarHas(path, "oci-layout")
	if err != nil {
		return nil, fmt.Errorf("open images in %s: %w", path, err)
	}
	if !isLayout {
		return openDockerArchive(path)
	}
	tmp, err := os.MkdirTemp("", "image-layout-")
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	if err := untar(path, tmp); err != nil {
		return nil, errors.Join(fmt.Errorf("unpack images in %s: %w", path, err), os.RemoveAll(tmp))
	}
	archive, err := openLayout(tmp, tmp)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return archive, nil
}

// Close removes what Open unpacked.
func (a *Archive) Close() error {
	if a.tmp == "" {
		return nil
	}
	return os.RemoveAll(a.tmp)
}

func openLayout(dir, tmp string) (*Archive, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI image layout: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read image layout %s: %w", dir, err)
	}
	archive := &Archive{tmp: tmp}
	for _, descriptor := range manifest.Manifests {
		named, err := fromDescriptor(index, descriptor)
		if err != nil {
			return nil, fmt.Errorf("read image layout %s: %w", dir, err)
		}
		archive.Images = append(archive.Images, named)
	}
	return archive, nil
}

func fromDescriptor(index v1.ImageIndex, descriptor v1.Descriptor) (named Named, err error) {
	named.Ref = descriptor.Annotations[AnnotationImageName]
	named.Ref = cmp.Or(named.Ref, descriptor.Annotations[AnnotationRefName])
	if descriptor.MediaType.IsIndex() {
		named.Index, err = index.ImageIndex(descriptor.Digest)
	} else {
		named.Image, err = index.Image(descriptor.Digest)
	}
	return named, err
}

func openDockerArchive(path string) (*Archive, error) {
	opener := func() (io.ReadCloser, error) { return os.Open(path) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, fmt.Errorf("%s is neither an OCI image layout nor a Docker archive: %w", path, err)
	}
	archive := &Archive{}
	for _, descriptor := range manifest {
		if len(descriptor.RepoTags) == 0 && len(manifest) == 1 {
			img, err := tarball.Image(opener, nil)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			archive.Images = append(archive.Images, Named{Image: img})
		}
		for _, ref := range descriptor.RepoTags {
			tag, err := name.NewTag(ref)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			img, err := tarball.Image(opener, &tag)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			archive.Images = append(archive.Images, Named{Ref: ref, Image: img})
		}
	}
	return archive, nil
}

func emptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }

func tarHas(path, entry string) (bool, error) {
	found := false
	err := eachEntry(path, func(header *tar.Header, _ io.Reader) error {
		if filepath.Clean(header.Name) == entry {
			found = true
			return io.EOF
		}
		return nil
	})
	return found, err
}

func untar(path, dir string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // an entry cannot leave the directory
	if err != nil {
		return err
	}
	err = eachEntry(path, func(header *tar.Header, content io.Reader) error {
		if header.Typeflag != tar.TypeReg {
			return nil
		}
		entry := filepath.Clean(header.Name)
		if header.Size > info.Size() { // holes, which no image layout has
			return fmt.Errorf("%s is larger than the archive", entry)
		}
		if err := root.MkdirAll(filepath.Dir(entry), 0o755); err != nil {
			return err
		}
		file, err := root.OpenFile(entry, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s occurs twice", entry)
			}
			return err
		}
		_, err = io.CopyN(file, content, header.Size)
		return errors.Join(err, file.Close())
	})
	return errors.Join(err, root.Close())
}

// eachEntry calls visit for every entry; visit ends the walk with io.EOF.
func eachEntry(path string, visit func(*tar.Header, io.Reader) error) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err == nil {
			err = visit(header, reader)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
