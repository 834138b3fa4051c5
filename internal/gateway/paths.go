package gateway

import (
	"slices"
	"strconv"
	"strings"
)

// ambiguous reports whether a request would take another route if its path were read by other
// rules, so that a Service could take it for a path that is not public. raw is the path as it was
// sent, and route that of the path as net/http read it, nil for none.
func (t table) ambiguous(host, raw string, route *Route, by *asked) bool {
	if !unusual(raw) || t.whole(host) {
		return false
	}
	all, complete := readings(raw, maxReadings/(1+t.expressions(host)))
	return !complete || slices.ContainsFunc(all, func(path string) bool { return t.find(host, path, by) != route })
}

// unusual reports whether servers may read a path by different rules.
func unusual(raw string) bool {
	return strings.ContainsAny(raw, `%;\`) || strings.Contains(raw, "//") || strings.Contains(raw, "/.")
}

// whole reports whether all paths of a host lead to the same routes: each is for all paths, and the
// last one for all requests.
func (t table) whole(host string) bool {
	routes := t[host]
	if len(routes) == 0 || !routes[len(routes)-1].Conditions.none() {
		return false
	}
	return !slices.ContainsFunc(routes, func(r Route) bool { return r.Pattern != nil || r.PathType == exact || trimmed(r.Path) != "" })
}

// expressions counts the regular expressions by which a route of a host is found.
func (t table) expressions(host string) (n int) {
	_, parent, _ := strings.Cut(host, ".")
	for _, of := range [][]Route{t[host], t["*."+parent]} {
		for i := range of {
			if n += of[i].Conditions.expressions(); of[i].Pattern != nil {
				n++
			}
		}
	}
	return n
}

// rules are those on which servers differ. Each server follows some of them, in some order.
var rules = []func(path string) string{withoutParameters, withSlashes, withoutDots, withoutEmpty}

// maxReadings bounds the readings of one path, in bytes of all. Where regular expressions are
// looked for in each reading, it is divided by their number.
const maxReadings = 512 << 10

// readings returns the paths for which servers may take a path that was sent. complete is false if
// they have more bytes than most.
func readings(raw string, most int) (all []string, complete bool) {
	type reading struct {
		path    string
		decoded int // times; what is encoded twice is decoded twice
	}
	list, known, size := []reading{{raw, 0}}, map[reading]bool{}, 0
	add := func(r reading) {
		if !known[r] {
			known[r] = true
			list = append(list, r)
			size += len(r.path)
		}
	}
	for n := 0; n < len(list); n++ {
		if size > most {
			return nil, false
		}
		r := list[n]
		for _, rule := range rules {
			add(reading{rule(r.path), r.decoded})
		}
		if r.decoded < 2 {
			add(reading{decode(r.path, ""), r.decoded + 1})
			add(reading{decode(r.path, "/"), r.decoded + 1})
		}
		if r.decoded > 0 {
			all = append(all, r.path)
		}
	}
	return all, true
}

// decode decodes what is encoded in a path (RFC 3986, section 2.1), except the bytes to keep: an
// encoded slash separates segments, or is a part of one (section 2.2).
func decode(path, keep string) string {
	var b strings.Builder
	for at := 0; at < len(path); at++ {
		if path[at] == '%' && at+2 < len(path) {
			c, err := strconv.ParseUint(path[at+1:at+3], 16, 8)
			if err == nil && strings.IndexByte(keep, byte(c)) < 0 {
				b.WriteByte(byte(c))
				at += 2
				continue
			}
		}
		b.WriteByte(path[at])
	}
	return b.String()
}

// withoutParameters ends each segment at a semicolon (RFC 3986, section 3.3).
func withoutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// withSlashes counts a backslash as a slash (WHATWG URL, special schemes).
func withSlashes(path string) string { return strings.ReplaceAll(path, `\`, "/") }

// withoutDots removes dot segments (RFC 3986, section 5.2.4).
func withoutDots(path string) string {
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		switch {
		case s != "." && s != "..":
			kept = append(kept, s)
			continue
		case s == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		}
		if i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// withoutEmpty merges slashes.
func withoutEmpty(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
