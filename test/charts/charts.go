// Package charts finds the archives of the components' real charts, which tests install. They are
// not in the repository. A test without them is skipped.
package charts

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// Missing is the reason of a skip.
const Missing = "the components' charts are not here (fix: make charts)"

// digests is the file with the digests of the charts, named from the repository's root.
const digests = "internal/components/digests.yaml"

// beside is the first place to look, for machines without internet.
const beside = "../shared/charts"

// index is written when a cache is complete.
const index = "index.yaml"

// Directory returns the folder with all charts as NAME-VERSION.tgz, or skips the test.
func Directory(t testing.TB) string {
	t.Helper()
	dir, err := Find()
	if err != nil {
		t.Skip(Missing)
	}
	return dir
}

// Find returns the folder with all charts as NAME-VERSION.tgz: the one beside the repository, or
// else the cache. Go's test cache considers whether they exist.
func Find() (string, error) {
	if dir := inputs.Path(beside); exists(dir) {
		return dir, nil
	}
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	// Named from the root: the go command ignores files outside the module.
	if relative, err := filepath.Rel(inputs.Root(), filepath.Join(cache, index)); err == nil && exists(inputs.Path(relative)) {
		return cache, nil
	}
	return "", errors.New(Missing)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Cache returns the folder that `make charts` fills. Other digests have another folder.
func Cache() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	text, err := inputs.Read(inputs.Path(digests))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return filepath.Join(cache, "pipeops-test", "charts", fmt.Sprintf("%x", sum[:6])), nil
}
