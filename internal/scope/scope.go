// Package scope defines for which addresses credentials are: a server, and a path prefix there. A
// Secret names its own scope, so that a caller that names the Secret cannot have it sent to its own
// server.
package scope

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scope is an address, and all that are below it. The zero Scope holds nothing.
type Scope struct {
	scheme, address, path string
}

const maxURL = 2048

// ports are those of addresses that name none.
var ports = map[string]string{"https": "443", "http": "80", "oci": "443"}

// Parse parses SCHEME://HOST/PATH. Without the path, the scope is the whole server.
func Parse(text string) (Scope, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL || u.Hostname() == "" || ports[u.Scheme] == "":
		return Scope{}, errors.New("is none: give https://HOST/PATH or oci://HOST/PATH")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Scope{}, errors.New("may have neither user, query nor fragment")
	}
	if strings.Trim(u.Path, "/") != "" {
		if err := checkURLPath(u); err != nil {
			return Scope{}, err
		}
	}
	return Scope{u.Scheme, address(u), "/" + strings.Trim(u.Path, "/")}, nil
}

// Holds reports whether an address is within the scope: it has the same scheme, host and port, and
// the scope's path or one below it. It returns false for an address that a server could interpret
// as another one.
func (s Scope) Holds(u *url.URL) bool {
	if s.scheme == "" || u.Scheme != s.scheme || address(u) != s.address {
		return false
	}
	if strings.Trim(u.Path, "/") != "" && checkURLPath(u) != nil {
		return false
	}
	return Below(u.Path, s.path)
}

// Below reports whether a path is another one, or below it.
func Below(path, base string) bool {
	path, base = "/"+strings.Trim(path, "/"), "/"+strings.Trim(base, "/")
	return path == base || strings.HasPrefix(path, strings.TrimSuffix(base, "/")+"/")
}

// CheckPath refuses every path that a server could resolve to another one: Below compares
// text.
func CheckPath(path string) error {
	if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == '\\' || r == '%' }) {
		return errors.New(`has a path with \, %, a control character or invalid UTF-8, once it is decoded`)
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/") {
		name, _, _ := strings.Cut(segment, ";") // Java's servers drop what follows
		if strings.Trim(name, ". ") == "" {
			return errors.New("has a path with an empty, a . or a .. segment: give the path that it leads to")
		}
	}
	return nil
}

// HidesSlash reports whether a path contains a / as %2F, which servers interpret differently.
func HidesSlash(u *url.URL) bool {
	return strings.Count(u.EscapedPath(), "/") != strings.Count(u.Path, "/")
}

func checkURLPath(u *url.URL) error {
	if HidesSlash(u) {
		return errors.New("hides a / as %2F: servers disagree about what that is")
	}
	return CheckPath(u.Path)
}

func address(u *url.URL) string {
	port := cmp.Or(u.Port(), ports[u.Scheme])
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
