package render

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/dirhash"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

// ContentDigest returns the h1 hash (golang.org/x/mod/sumdb/dirhash) of the files that Helm reads
// from a chart's archive. Two archives with the same files have the same digest, so that a mirror
// may pack a chart again. The error is of an archive that Helm does not read, or that has a file
// twice.
func ContentDigest(packed []byte) (string, error) {
	files, err := archive.LoadArchiveFiles(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	return digestOf(files)
}

func digestOf(files []*archive.BufferedFile) (string, error) {
	content := make(map[string][]byte, len(files))
	for _, file := range files {
		if _, double := content[file.Name]; double {
			return "", fmt.Errorf("the file %s is in it twice", file.Name)
		}
		content[file.Name] = file.Data
	}
	return dirhash.Hash1(slices.Collect(maps.Keys(content)), func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[name])), nil
	})
}
