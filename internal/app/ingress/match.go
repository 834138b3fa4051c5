package ingress

import (
	"cmp"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
)

const (
	// typePattern is the type of a path that is a regular expression, and of a value.
	typePattern = "RegularExpression"
	// maxMatches bounds the matches of one HTTPRoute, as its definition does.
	maxMatches = 128
)

// httpMatch is a match of an HTTPRoute, and the rule that it is of.
type httpMatch struct {
	path, pathType string
	pattern        *regexp.Regexp // nil if the path is not a regular expression
	conditions     gateway.Conditions
	rule           *httpRule
}

// fits returns a reason if a rule replaces the prefix of a path that is found otherwise.
func (m *httpMatch) fits(at string, rule *httpRule) string {
	if m.pathType == string(networkingv1.PathTypePrefix) || rule.filters == nil {
		return ""
	}
	changes := []*gateway.PathChange{rule.filters.Path}
	if rule.redirects() {
		changes = append(changes, rule.filters.Redirect.Path)
	}
	for _, change := range changes {
		if change != nil && change.Prefix {
			return at + " has ReplacePrefixMatch, and a path that is not PathPrefix; use ReplaceFullPath"
		}
	}
	return ""
}

// reader reads an HTTPRoute.
type reader struct {
	compile  func(string) (*regexp.Regexp, error)
	patterns int // that it has compiled
}

func (d *reader) pattern(at, text string) (*regexp.Regexp, string) {
	if d.patterns++; d.patterns > maxPatterns {
		return nil, fmt.Sprintf("%s is one regular expression too many; the gateway takes %d", at, maxPatterns)
	}
	compiled, err := d.compile(text)
	if err != nil {
		return nil, at + " " + err.Error()
	}
	return compiled, ""
}

// match returns a match, and why it cannot be carried. Its path is then the root, or what can be
// read of it, so that no other route serves what the match is for.
func (d *reader) match(at string, match map[string]any) (m httpMatch, reason string) {
	m = httpMatch{path: "/", pathType: string(networkingv1.PathTypePrefix)}
	if reason = unknownField(at, match, carriedMatch); reason != "" {
		return m, reason
	}
	if reason = d.path(at+".path", &m, match["path"]); reason != "" {
		return m, reason
	}
	var c gateway.Conditions
	if c.Method, _ = match["method"].(string); c.Method != "" && !httpguts.ValidHeaderFieldName(c.Method) {
		return m, at + ".method is not a method of HTTP"
	}
	if c.Headers, reason = d.values(at+".headers", match["headers"], headerName); reason != "" {
		return m, reason
	}
	if c.Query, reason = d.values(at+".queryParams", match["queryParams"], parameterName); reason != "" {
		return m, reason
	}
	m.conditions = c
	return m, ""
}

func (d *reader) path(at string, m *httpMatch, v any) (reason string) {
	path, _ := v.(map[string]any)
	kind, _ := path["type"].(string)
	value, _ := path["value"].(string)
	switch kind {
	case "", "PathPrefix":
	case "Exact":
		m.pathType = string(networkingv1.PathTypeExact)
	case typePattern:
		if m.pattern, reason = d.pattern(at+".value", value); reason == "" {
			m.path, m.pathType = value, typePattern
		}
		return reason
	default:
		return at + ".type is " + kind + ", which the gateway does not support; use Exact, PathPrefix or RegularExpression"
	}
	if m.path = cmp.Or(value, "/"); !strings.HasPrefix(m.path, "/") {
		m.path = "/"
		return at + ".value does not begin with a slash"
	}
	return ""
}

// values returns what a match demands of headers, or of the query. Of several entries with one name
// the first counts, as the Gateway API says.
func (d *reader) values(at string, v any, nameOf func(string) string) (all []gateway.ValueCondition, reason string) {
	for i, entry := range objects(v) {
		at := fmt.Sprintf("%s[%d]", at, i)
		if reason := unknownField(at, entry, carriedValue); reason != "" {
			return nil, reason
		}
		kind, _ := entry["type"].(string)
		name, _ := entry["name"].(string)
		c := gateway.ValueCondition{Name: nameOf(name)}
		if c.Name == "" {
			return nil, at + ".name is not valid; name a header without Host, or a parameter"
		}
		c.Value, _ = entry["value"].(string)
		switch kind {
		case "", "Exact":
		case typePattern:
			if c.Pattern, reason = d.pattern(at+".value", c.Value); reason != "" {
				return nil, reason
			}
		default:
			return nil, at + ".type is " + kind + ", which the gateway does not support; use Exact or RegularExpression"
		}
		if !slices.ContainsFunc(all, func(had gateway.ValueCondition) bool { return had.Name == c.Name }) {
			all = append(all, c)
		}
	}
	return all, ""
}

// headerName returns the name of a header as requests have it; empty if it is not valid. The host
// is no header to net/http.
func headerName(name string) string {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if !httpguts.ValidHeaderFieldName(name) || canonical == "Host" {
		return ""
	}
	return canonical
}

func parameterName(name string) string { return name }
