package helm

import (
	"io"
	"net/http"
	"strings"
)

// maxManifest is what a registry may answer with besides a chart's archive: a manifest, an index, a
// token, an error. Registries accept manifests of 4 MiB at most; a chart's has less than 2 KiB.
const maxManifest = 1 << 20

// registryTransport bounds a registry's answers, because go-containerregistry reads manifests
// whole.
type registryTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t registryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	what, limit := "the registry's manifest, or another of its answers,", int64(maxManifest)
	if isBlob(r) {
		what, limit = "the chart's archive", maxArchive
	}
	if r.Method != http.MethodHead && resp.ContentLength > limit {
		_ = resp.Body.Close()
		return nil, tooLarge(what, limit)
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: limit, tooLarge: tooLarge(what, limit)}
	return resp, nil
}

// isBlob reports whether a request is for a blob, also after redirects to where blobs are stored.
func isBlob(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return strings.Contains(r.URL.Path, "/blobs/")
}

// boundedBody fails once it has given more than what is left.
type boundedBody struct {
	io.ReadCloser
	left     int64
	tooLarge error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.tooLarge
	}
	return n, err
}
