package gateway

import (
	"cmp"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// Filters change the requests of a route and their responses.
type Filters struct {
	Request, Response Modifier
	// Redirect answers requests in place of a backend; nil for none.
	Redirect *Redirect
	// Host replaces that of requests; empty for their own.
	Host string
	// Path replaces that of requests; nil for their own.
	Path *PathChange
	// Mirrors get copies of requests.
	Mirrors []Mirror
}

// Modifier changes headers: it sets some, adds values to others, and removes what is left. Names
// are in their canonical form.
type Modifier struct {
	Set, Add []Header
	Remove   []string
}

// Header is a header with one value.
type Header struct{ Name, Value string }

// apply changes a header.
func (m *Modifier) apply(h http.Header) {
	for _, set := range m.Set {
		h[set.Name] = []string{set.Value}
	}
	for _, add := range m.Add {
		h.Add(add.Name, add.Value)
	}
	for _, name := range m.Remove {
		delete(h, name)
	}
}

// PathChange replaces a path as a whole, or the prefix by which its route was found.
type PathChange struct {
	Value  string
	Prefix bool
}

// apply returns the path for a request whose path was sent as raw. It returns false if a server
// could read that as a path outside of the one that replaces the prefix.
func (p *PathChange) apply(route *Route, raw string) (path string, ok bool) {
	if p == nil || raw == "*" {
		return raw, true
	}
	if !p.Prefix {
		return cmp.Or(p.Value, "/"), true
	}
	rest := after(raw, len(trimmed(route.Path)))
	path = "/" + strings.TrimLeft(trimmed(p.Value)+rest, "/")
	if !unusual(rest) {
		return path, true
	}
	all, complete := readings(path, maxReadings)
	for _, read := range all {
		complete = complete && hasPrefix(read, p.Value)
	}
	return path, complete
}

// after returns what follows the first n bytes of a path once it is decoded.
func after(raw string, n int) string {
	at := 0
	for ; n > 0 && at < len(raw); n-- {
		if raw[at] == '%' && at+2 < len(raw) {
			at += 2
		}
		at++
	}
	return raw[at:]
}

// filter changes a request as its route and its backend say, and copies it to their mirrors.
func (h *Handler) filter(out *http.Request, to target) {
	for _, f := range []*Filters{to.filters, to.of} {
		if f == nil {
			continue
		}
		f.Request.apply(out.Header)
		out.Host = cmp.Or(f.Host, out.Host)
	}
	if to.path != "" {
		gatewaywire.Retarget(out, to.path, to.in)
	}
	if to.filters != nil && len(to.filters.Mirrors) > 0 {
		h.mirror(out, to.filters.Mirrors)
	}
}

// Redirect answers a request with another URL. What is empty stays as the client sent it.
type Redirect struct {
	Scheme string // http or https
	Host   string
	Port   int
	Path   *PathChange
	Status int
}

// location returns the URL for a request. Its path is that of the redirect already. Without a port,
// a scheme has its own one, and the client's scheme the client's.
func (d *Redirect) location(r *http.Request, path, query string) string {
	scheme := d.Scheme
	if scheme == "" {
		if scheme = "https"; r.Header.Get("X-Forwarded-Proto") == "http" {
			scheme = "http"
		}
	}
	port := strconv.Itoa(d.Port)
	if d.Port == 0 {
		if port = ""; d.Scheme == "" {
			_, port, _ = net.SplitHostPort(r.Host) // without a port it is empty
		}
	}
	host := cmp.Or(d.Host, hostOf(r))
	if port != "" && port != map[string]string{"http": "80", "https": "443"}[scheme] {
		host = net.JoinHostPort(host, port)
	}
	if query != "" {
		query = "?" + query
	}
	return scheme + "://" + host + gatewaywire.Escaped(path+query)
}

// redirect answers a request with its route's redirect.
func (h *Handler) redirect(w http.ResponseWriter, r *http.Request, route *Route, raw, query string) {
	to := route.Filters.Redirect
	path, ok := to.Path.apply(route, raw)
	if !ok {
		h.answer(w, r, http.StatusBadRequest, gatewaywire.Ambiguous, nil)
		return
	}
	if path == "*" {
		path = "/"
	}
	header := w.Header()
	header.Set("Location", to.location(r, path, query))
	header.Set("Content-Length", "0")
	route.Filters.Response.apply(header)
	w.WriteHeader(to.Status)
}
