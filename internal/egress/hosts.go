package egress

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// PolicyKey is the key of the cluster owner's policy that lists hosts.
const PolicyKey = "fetchHosts"

// Hosts are the hosts from which the cluster owner's policy lets the agent fetch.
type Hosts struct {
	// Patterns are names in lower case; * matches any text. Nil allows any host.
	Patterns []string
	// Source names where the owner sets the policy, for messages.
	Source string
}

// check returns a *RefusedError if the policy lists hosts, and not this one.
func (h Hosts) check(host string) error {
	name := canonical(host)
	if h.Patterns == nil || slices.ContainsFunc(h.Patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name) // names have no slash
		return ok && err == nil
	}) {
		return nil
	}
	return &RefusedError{Host: host, Source: h.Source}
}

// canonical returns a host as net/http looks it up, in lower case and without the root's dot.
func canonical(host string) string {
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		if ascii, err := idna.Lookup.ToASCII(host); err == nil {
			host = ascii
		}
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
