package gatewaywire

import (
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
)

// flushAfter is how long bytes of an answer wait for more of them.
const flushAfter = 5 * time.Millisecond

// NewProxy returns what passes public requests on at either end. prefix is that of its log. The
// caller sets the rest.
func NewProxy(log zerolog.Logger, prefix string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		BufferPool: httpserver.NewBuffers(), FlushInterval: flushAfter, ErrorLog: httpserver.ErrorLog(log, prefix),
	}
}

// Forward makes out pass in on to a host, with the target and the trailers as they come (RFC 9110,
// sections 6.5.1 and 7.7). in is the request that net/http gave to its handler, and no copy of it.
func Forward(out, in *http.Request, scheme, host string) {
	out.URL = targetURL(scheme, host, Target(in))
	out.Host = in.Host
	if out.Body == nil || in.Trailer == nil && len(in.TransferEncoding) == 0 {
		return
	}
	out.Trailer = http.Header{}
	copyTrailers(out.Trailer, in.Trailer)
	out.Body = &trailedBody{out.Body, in, out.Trailer}
}

// Retarget replaces the path of a request that Forward made of in. The query stays.
func Retarget(out *http.Request, path string, in *http.Request) {
	if _, query, asked := strings.Cut(Target(in), "?"); asked {
		path += "?" + query
	}
	out.URL = targetURL(out.URL.Scheme, out.URL.Host, path)
}

// Target returns a request's target as it was sent, without the scheme and the host that it may
// begin with (RFC 9112, section 3.2).
func Target(r *http.Request) string {
	raw := r.RequestURI
	if strings.HasPrefix(raw, "/") || raw == "*" {
		return raw
	}
	_, rest, _ := strings.Cut(raw, "://")
	at := strings.IndexAny(rest, "/?")
	switch {
	case at < 0 && r.Method == http.MethodOptions:
		return "*"
	case at < 0:
		return "/"
	case rest[at] == '?':
		return "/" + rest[at:]
	}
	return rest[at:]
}

// ValidTarget reports whether a request may have its target. HTTP/2 and HTTP/3 can express spaces,
// which would end the target in HTTP/1.
func ValidTarget(r *http.Request) bool {
	if r.RequestURI == "*" && r.Method != http.MethodOptions {
		return false
	}
	return !strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// ValidHost reports whether a request's port is a number (RFC 3986, section 3.2.3).
func ValidHost(host string) bool {
	at := strings.LastIndexByte(host, ':')
	return at < 0 || strings.HasSuffix(host, "]") || strings.Trim(host[at+1:], "0123456789") == ""
}

// targetURL returns a URL that net/http writes as the target.
func targetURL(scheme, host, target string) *url.URL {
	if !strings.HasPrefix(target, "//") {
		return &url.URL{Scheme: scheme, Host: host, Opaque: target}
	}
	// Of an opaque URL with two slashes, net/http would write the scheme too. So characters that no
	// URL has are escaped in this case.
	raw, query, asked := strings.Cut(target, "?")
	raw = Escaped(raw)
	path, _ := url.PathUnescape(raw) // the server has looked at it
	return &url.URL{Scheme: scheme, Host: host, Path: path, RawPath: raw, RawQuery: query, ForceQuery: asked}
}

// Escaped escapes what net/url does not take for an escaped path, and leaves the rest.
func Escaped(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c < 0x80 && !strings.ContainsRune(`"<>\^{|}#`+"`", rune(c)) {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c), 16)))
	}
	return b.String()
}

// trailedBody is a body whose trailers are known when it ends.
type trailedBody struct {
	io.ReadCloser
	in  *http.Request
	out http.Header
}

// Read implements io.Reader.
func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		copyTrailers(b.out, b.in.Trailer)
	}
	return n, err
}

// copyTrailers leaves out what a client must not say, or not at the end.
func copyTrailers(to, from http.Header) {
	for name, values := range from {
		if httpguts.ValidTrailerHeader(name) && !Dropped(name) {
			to[name] = values
		}
	}
}
