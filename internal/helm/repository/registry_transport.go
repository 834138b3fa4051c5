package repository

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/scope"
)

// maxManifest is what a registry may answer with besides a chart's archive: a manifest, an index, a
// token, an error. Registries accept manifests of 4 MiB at most; a chart's has less than 2 KiB.
const maxManifest = 1 << 20

// registryTransport bounds a registry's answers, because go-containerregistry reads manifests
// whole. It sends the login to the registry itself, and to the token server that the login names: a
// registry may name any server as its realm.
type registryTransport struct {
	next  http.RoundTripper
	login []scope.Scope
}

// registryTransport returns the transport for a reference and a login, which may be nil.
func (f *Fetcher) registryTransport(ref name.Reference, l *Login) registryTransport {
	t := registryTransport{next: f}
	if l == nil {
		return t
	}
	host := ref.Context().RegistryStr()
	for _, scheme := range []string{"https", "http"} { // over http, Fetcher allows some hosts alone
		if own, err := scope.Parse(scheme + "://" + host); err == nil {
			t.login = append(t.login, own)
		}
	}
	t.login = append(t.login, l.realm)
	return t
}

// checkLogin refuses a request that would take the login elsewhere.
func (t registryTransport) checkLogin(r *http.Request) error {
	_, _, sent := r.BasicAuth()
	if !sent || slices.ContainsFunc(t.login, func(s scope.Scope) bool { return s.Holds(r.URL) }) {
		return nil
	}
	return problem.Errorf(problem.Invalid, "if the registry's login is there, add the key realm with this address to the Secret",
		"the registry wants the login to be sent to %.253s, for which the Secret is not", shown(r.URL)).WithField(CredentialsField)
}

// RoundTrip implements http.RoundTripper.
func (t registryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.checkLogin(r); err != nil {
		return nil, err
	}
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
