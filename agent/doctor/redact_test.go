package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRedactor_MasksByShape(t *testing.T) {
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

func TestTail_CutsAtLine(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	got := tail([]byte(strings.Repeat(line, maxPart/100+10)))
	assert.LessOrEqual(t, len(got), maxPart)
	assert.Greater(t, len(got), maxPart-100)
	assert.True(t, strings.HasPrefix(string(got), line))
	assert.Equal(t, "short", string(tail([]byte("short"))))
}

func TestEndOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("a", maxPart)+strings.Repeat("b", 2*maxPart)), 0o600))
	got, err := endOf(file)
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("b", 2*maxPart), string(got))
}

func FuzzRedactor(f *testing.F) {
	f.Add("before s3cret after", "s3cret")
	f.Add("http://u:p:w@d@host", "p:w@d")
	f.Add("-----BEGIN PRIVATE KEY-----abcd-----END PRIVATE KEY-----", "abcd")
	f.Fuzz(func(t *testing.T, text, secret string) {
		ours := masked + " private key " + masked + " JWT" // what the redactor itself writes
		if len(secret) < shortestSecret || strings.Contains(secret, "*") || strings.Contains(ours, secret) {
			return
		}
		if got := newRedactor([]string{secret}).text(text); strings.Contains(got, secret) {
			t.Fatalf("%q is in %q", secret, got)
		}
	})
}
