package gateway

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// ambiguous reports whether a request would take another route if its path were read by another
// rule, so that a Service could take it for a path that is not public. raw is the path as it was
// sent.
func (t table) ambiguous(host, decoded, raw string) bool {
	if !strings.ContainsAny(raw, `%;\`) && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") {
		return false
	}
	route, found := t.find(host, decoded)
	return slices.ContainsFunc(forms(decoded, raw), func(form string) bool {
		other, ok := t.find(host, form)
		return ok != found || other.Host != route.Host || other.Path != route.Path || other.PathType != route.PathType
	})
}

// forms returns the paths for which servers may take a path, other than the one as which net/http
// decoded it: raw is the path as it was sent. The rules on which they differ:
//   - An encoded slash separates segments, or is a part of one (RFC 3986, section 2.2).
//   - Dot segments are removed (RFC 3986, section 6.2.2.3), and double slashes merged.
//   - A backslash counts as a slash (WHATWG URL, special schemes).
//   - A segment ends at a semicolon: it has parameters (RFC 3986, section 3.3).
//   - What is encoded twice is decoded twice.
func forms(decoded, raw string) []string {
	all := []string{}
	if kept := keepSlashes(raw); kept != decoded {
		all = append(all, kept)
	}
	for _, p := range []string{decoded, decodedAgain(decoded)} {
		if clean := normalized(p); clean != p {
			all = append(all, clean)
		}
	}
	return all
}

// keepSlashes decodes a path but for its encoded slashes.
func keepSlashes(raw string) string {
	const keep = "%252F"
	kept, err := url.PathUnescape(strings.NewReplacer("%2f", keep, "%2F", keep).Replace(raw))
	if err != nil {
		return raw
	}
	return kept
}

func decodedAgain(decoded string) string {
	if again, err := url.PathUnescape(decoded); err == nil {
		return again
	}
	return decoded
}

func normalized(p string) string {
	segments := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	clean := path.Clean("/" + strings.Join(segments, "/"))
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
