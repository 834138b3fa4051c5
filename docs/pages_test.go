package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fenced     = regexp.MustCompile("(?s)```.*?```")
	linked     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	titled     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// slug is a heading's anchor, as GitHub makes it.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(heading), "$1")
	return strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// hasAnchor says whether a page has a heading of this anchor.
func hasAnchor(page, anchor string) bool {
	return slices.ContainsFunc(titled.FindAllStringSubmatch(page, -1), func(h []string) bool { return slug(h[1]) == anchor })
}

// pages are all Markdown files of the repository, without code in fences.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			found[path] = fenced.ReplaceAllString(read(t, path), "")
		}
		return nil
	}))
	require.Greater(t, len(found), 70)
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(to)
			assert.NoError(t, err, "%s links to %s", path, link[1])
			if page, isPage := all[to]; anchor != "" && isPage {
				assert.True(t, hasAnchor(page, anchor), "%s links to %s, which has no such heading", path, link[1])
			}
		}
	}
}

// TestEveryPageIsInItsIndex keeps pages from being found by chance alone.
func TestEveryPageIsInItsIndex(t *testing.T) {
	readme, decisions := read(t, "../README.md"), read(t, "adr/README.md")
	for path := range pages(t) {
		switch dir, name := filepath.Split(path); dir {
		case "../docs/":
			assert.Contains(t, readme, "| [docs/"+name+"](docs/"+name+")", "the README's last tables")
		case "../docs/adr/":
			assert.True(t, name == "README.md" || strings.Contains(decisions, "("+name+")"), "docs/adr/README.md has no line for %s", name)
		}
	}
}

// TestEveryFolderIsInTheArchitecture looks each Go package up in architecture.md, or a folder it is in.
func TestEveryFolderIsInTheArchitecture(t *testing.T) {
	doc := read(t, "architecture.md")
	for _, root := range []string{"agent", "cmd", "deployments", "internal", "runnerapi", "scripts", "test", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			for named := dir; ; named = named[:strings.LastIndex(named, "/")] {
				if strings.Contains(doc, "`"+named+"`") || strings.Contains(doc, "`"+named+"/`") {
					return nil
				}
				if !strings.Contains(named, "/") {
					assert.Fail(t, dir+" is not in docs/architecture.md")
					return nil
				}
			}
		}))
	}
}
