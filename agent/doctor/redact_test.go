package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSecretsAreKnownByTheirShape(t *testing.T) {
	r := newRedactor(nil)
	for _, text := range []string{
		"-----BEGIN EC PRIVATE KEY-----\ncanary\n-----END EC PRIVATE KEY-----",
		"-----BEGIN PRIVATE KEY-----\ncanary that is cut off",
		"token pipeops_abcdefghijklmnop_canarycanarycanary.abcdef",
		"eyJhbGciOiJSUzI1NiJ9.canarycanary.canary-_",
		"proxy http://me:canary@proxy:3128 is down",
		"Authorization: Bearer canarycanary",
		`{"password":"canary","user":"me"}`,
		"AGENT_TOKEN=canary",
		"api-key: canary",
	} {
		assert.NotContains(t, r.text(text), "canary", text)
	}
	for _, text := range []string{
		"the token abcdefghijklmnop expired at 2026-11-21", "secret pipeops/pipeops-agent-identity", "agent a1 is online",
		`{"check":"token","status":"ok"}`,
	} {
		assert.Equal(t, text, r.text(text))
	}
}

func FuzzKnownSecretsAreMasked(f *testing.F) {
	f.Add("before ", "s3cret", " after")
	f.Add("http://u:", "p:w@d", "@host")
	f.Add("-----BEGIN PRIVATE KEY-----", "abcd", "-----END PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		if len(secret) < shortestSecret || strings.Contains(masked+" private key JWT pipeops_", secret) || strings.Contains(secret, "*") {
			t.Skip()
		}
		masked := newRedactor([]string{secret}).text(before + secret + after)
		if strings.Contains(masked, secret) && !strings.Contains(before+after, secret) && !overlaps(before, secret, after) {
			t.Fatalf("%q is in %q", secret, masked)
		}
	})
}

// overlaps says whether the secret can also be read across a border, or begins
// with its own end, so that masking one occurrence leaves another.
func overlaps(before, secret, after string) bool {
	return strings.Count(before+secret+after, secret) != 1 || strings.Contains(before+after, secret)
}
