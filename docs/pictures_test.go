package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// recordPictures is the environment variable with which `make pictures` records what the
	// pictures show, after it has made them.
	recordPictures = "PIPEOPS_RECORD_PICTURES"
	pictureRecord  = "images/PAGES.sha256"
)

// looks are the files that decide how the pages of a site look, by the site.
var looks = map[string][]string{
	"console":   {"../internal/web/templates/*.html", "../internal/web/assets/*.css", "../internal/web/console/templates/*.html"},
	"dashboard": {"../internal/web/templates/*.html", "../internal/web/assets/*.css", "../internal/web/dashboard/templates/*.html"},
}

// lookOf returns a digest of the files that decide how a site looks.
func lookOf(t *testing.T, site string) string {
	t.Helper()
	sum := sha256.New()
	for _, pattern := range looks[site] {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		slices.Sort(files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(file), len(text))
			sum.Write(text)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// TestPictures_UpToDate compares templates and styles with those of which the pictures
// were made. A picture NAME-x.png is of site NAME.
func TestPictures_UpToDate(t *testing.T) {
	pictures, err := filepath.Glob("images/*-*.png")
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	sites := map[string]bool{}
	for _, picture := range pictures {
		site, _, _ := strings.Cut(filepath.Base(picture), "-")
		require.Contains(t, looks, site, picture)
		sites[site] = true
	}
	var now bytes.Buffer
	for _, site := range []string{"console", "dashboard"} {
		if sites[site] {
			fmt.Fprintf(&now, "%s  %s\n", lookOf(t, site), site)
		}
	}
	if os.Getenv(recordPictures) != "" {
		require.NoError(t, os.WriteFile(pictureRecord, now.Bytes(), 0o644))
		return
	}
	recorded, err := os.ReadFile(pictureRecord)
	require.NoError(t, err)
	assert.Equal(t, string(recorded), now.String(), "a picture in docs/images is older than the pages that it shows; fix: make pictures")
}
