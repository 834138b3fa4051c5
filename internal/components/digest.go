package components

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/dirhash"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

// labelLength is what fits into a label of 63 characters and is still unique.
const labelLength = 40

// digestOf identifies a chart and its values, in a form that a label can hold.
func digestOf(chart Chart, values map[string]any) string {
	text, err := json.Marshal(struct {
		Chart  Chart
		Values map[string]any
	}{chart, values})
	if err != nil {
		panic(err) // values come from JSON or YAML
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:labelLength]
}

// ContentDigest returns the h1 hash (golang.org/x/mod/sumdb/dirhash) of the files that Helm reads
// from a chart's archive. Two archives with the same files have the same digest, so that a mirror
// may pack a chart again. The error is of an archive that Helm does not read, or that has a file
// twice.
func ContentDigest(packed []byte) (string, error) {
	files, err := archive.LoadArchiveFiles(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
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
