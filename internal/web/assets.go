package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets/style.css assets/icon.svg assets/*.js assets/vendor/*.js
var assetFiles embed.FS

// assetPrefix is the path below which assets are served.
const assetPrefix = "/assets/"

// asset is a file that pages load.
type asset struct {
	kind string
	body []byte
	url  string // with a digest of the content, so that browsers may keep it
}

// Assets serves the style sheet, the icon and the scripts.
type Assets struct {
	base          string // path of the site
	byName, byURL map[string]asset
}

// contentTypes are those of the assets. The machine's own table may differ.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// NewAssets reads the embedded files, for a site whose paths begin with base.
func NewAssets(base string) (*Assets, error) {
	a := &Assets{base: base, byName: map[string]asset{}, byURL: map[string]asset{}}
	err := fs.WalkDir(assetFiles, "assets", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := assetFiles.ReadFile(file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		name := path.Base(file)
		kept := asset{contentTypes[path.Ext(name)], body, base + assetPrefix + hex.EncodeToString(sum[:6]) + "/" + name}
		a.byName[name], a.byURL[kept.url] = kept, kept
		return nil
	})
	return a, err
}

// URL returns the path of an asset.
func (a *Assets) URL(name string) string { return a.byName[name].url }

// ServeHTTP implements http.Handler. It needs no session: the files are in every copy of the
// program.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kept, found := a.byURL[r.URL.Path]
	if !found || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "file not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kept.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(kept.body) // the client is gone if this fails
}

// has reports whether a request is for an asset.
func (a *Assets) has(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, a.base+assetPrefix) }
