package signin

import (
	"slices"
	"strings"
)

// Demand is what a route demands of its visitors: to be signed in, or to have a service token. If
// it has both, one of them lets a visitor in.
type Demand struct {
	// App is the App's namespace and name, with a slash between. Its sessions are for it alone.
	App string
	// Key is the one from which all keys of sessions and statements are derived.
	Key Key
	// Provider signs visitors in; nil if only service tokens let in. ProviderID changes with it:
	// sessions end when it changes.
	Provider   Provider
	ProviderID string
	// Emails are addresses, *@DOMAIN for all of a domain, and * for everyone whom the provider
	// identifies. A person needs one of them, or one of the groups.
	Emails, Groups []string
	// Tokens are the service tokens; nil for none.
	Tokens *Tokens
}

// Equal reports whether two demands are the same. Each may be nil.
func (d *Demand) Equal(o *Demand) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.App == o.App && d.Key == o.Key && d.Provider == o.Provider && d.ProviderID == o.ProviderID &&
		slices.Equal(d.Emails, o.Emails) && slices.Equal(d.Groups, o.Groups) && d.Tokens == o.Tokens
}

// admits reports whether a person is let in whose email the provider has verified, or is empty.
func (d *Demand) admits(email string, groups []string) bool {
	return slices.ContainsFunc(d.Emails, func(pattern string) bool { return matches(pattern, email) }) ||
		slices.ContainsFunc(d.Groups, func(group string) bool { return slices.Contains(groups, group) })
}

// Everyone is the pattern of an email that lets in each person whom the provider identifies.
const Everyone = "*"

// matches reports whether a pattern covers an email. Letters of ASCII count in either case, and
// others as they are, so that none passes for another.
func matches(pattern, email string) bool {
	if pattern == Everyone {
		return true
	}
	local, domain, ok := strings.Cut(lower(email), "@")
	if !ok || local == "" || domain == "" || strings.Contains(domain, "@") {
		return false
	}
	if of, all := strings.CutPrefix(pattern, "*@"); all {
		return domain == lower(of)
	}
	return local+"@"+domain == lower(pattern)
}

func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
