package node

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blobStore keeps the registry's blobs in directories laid out like an OCI image
// layout's. The first is written to; the others are the images that every
// cluster starts with, which thus need not be copied for each.
//
// The registry's own disk store hashes a blob each time it is asked whether it
// has it, which at tens of megabytes costs more than the pull.
type blobStore struct{ dirs []string }

var (
	_ registry.BlobStatHandler = blobStore{}
	_ registry.BlobPutHandler  = blobStore{}
)

func (s blobStore) Stat(_ context.Context, _ string, hash v1.Hash) (int64, error) {
	for _, dir := range s.dirs {
		info, err := os.Stat(blobPath(dir, hash))
		if err == nil {
			return info.Size(), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return 0, registry.ErrNotFound
}

func (s blobStore) Get(_ context.Context, _ string, hash v1.Hash) (io.ReadCloser, error) {
	for _, dir := range s.dirs {
		file, err := os.Open(blobPath(dir, hash))
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, registry.ErrNotFound
}

func (s blobStore) Put(_ context.Context, _ string, hash v1.Hash, content io.ReadCloser) error {
	target := blobPath(s.dirs[0], hash)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(s.dirs[0], "upload-")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, content.Close(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), target)
}

func blobPath(dir string, hash v1.Hash) string {
	return filepath.Join(dir, hash.Algorithm, hash.Hex)
}
