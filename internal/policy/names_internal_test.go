package policy

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzLike holds patterns of hosts and annotations against regular expressions.
func FuzzLike(f *testing.F) {
	f.Add("*.shop.example.com", "www.shop.example.com")
	f.Add("a*a", "a")
	f.Add("*apparmor.security*", "container.apparmor.security.beta.kubernetes.io/web")
	f.Add("*a*ab*", "aaab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		as, err := regexp.Compile("(?s)^" + strings.Join(parts, ".*") + "$")
		if err != nil || strings.ToValidUTF8(pattern+text, "") != pattern+text {
			return // a regular expression reads characters where a pattern has bytes
		}
		if got, want := like(pattern, text), as.MatchString(text); got != want {
			t.Fatalf("%q like %q: %v, not %v", text, pattern, got, want)
		}
	})
}
