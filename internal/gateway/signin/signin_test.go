package signin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

func TestMatches(t *testing.T) {
	for email, patterns := range map[string]struct{ yes, no []string }{
		"anna@example.com":               {[]string{"anna@example.com", "Anna@Example.COM", "*@example.com", "*@EXAMPLE.com", "*"}, []string{"*@com", "nna@example.com", "*@xample.com", "@example.com"}},
		"":                               {[]string{"*"}, []string{"*@example.com", "@", "*@"}},
		"@example.com":                   {[]string{"*"}, []string{"*@example.com", "@example.com"}},
		"anna@":                          {[]string{"*"}, []string{"*@", "anna@"}},
		"anna":                           {[]string{"*"}, []string{"anna", "*@"}},
		"a@evil.com@example.com":         {[]string{"*"}, []string{"*@example.com", "*@evil.com", "*@evil.com@example.com", "a@evil.com@example.com"}},
		"\u212Aim@example.com":           {[]string{"*@example.com"}, []string{"kim@example.com"}}, // a Kelvin sign
		"anna@example.com.evil.com":      {[]string{"*"}, []string{"*@example.com"}},
		"anna@e\u0445ample.com":          {[]string{"*"}, []string{"*@example.com"}},
		`"anna@example.com"@evil.com`:    {[]string{"*"}, []string{"*@example.com", "*@evil.com"}},
		"anna+x@example.com":             {[]string{"*@example.com"}, []string{"anna@example.com"}},
		"\tanna@example.com":             {[]string{"*@example.com"}, []string{"anna@example.com"}},
		"anna@example.com\x00.evil.test": {nil, []string{"*@example.com"}},
	} {
		for _, p := range patterns.yes {
			assert.True(t, matches(p, email), "%q %q", p, email)
		}
		for _, p := range patterns.no {
			assert.False(t, matches(p, email), "%q %q", p, email)
		}
	}
}

func TestParseTokens(t *testing.T) {
	token := strings.Repeat("a", minToken)
	for what, c := range map[string]struct {
		data map[string][]byte
		says string
	}{
		"none":            {nil, "it has no keys"},
		"empty":           {map[string][]byte{"ci": nil}, "key ci: the token has 0 characters, and needs 32 to 1024"},
		"short":           {map[string][]byte{"ci": []byte(token[1:] + "\n")}, "has 31 characters"},
		"long":            {map[string][]byte{"ci": []byte(strings.Repeat("a", maxToken+1))}, "has 1025 characters"},
		"with a space":    {map[string][]byte{"ci": []byte(token + " " + token)}, "a character that no header has"},
		"in two lines":    {map[string][]byte{"ci": []byte(token + "\n" + token)}, "a character that no header has"},
		"not ASCII":       {map[string][]byte{"ci": []byte(token + "é")}, "a character that no header has"},
		"the same twice":  {map[string][]byte{"a": []byte(token), "b": []byte(token + "\r\n")}, "key b: the token is that of a"},
		"one and a wrong": {map[string][]byte{"a": []byte(token), "b": nil}, "key b"},
	} {
		_, err := ParseTokens(c.data)
		require.ErrorContains(t, err, c.says, what)
		assert.NotContains(t, err.Error(), "aaaa", what)
	}
	tokens, err := ParseTokens(map[string][]byte{"ci": []byte(token + "\n"), "bot": []byte(token + "b")})
	require.NoError(t, err)
	for sent, name := range map[string]string{token: "ci", token + "b": "bot", "": "", token + "\n": "", token[1:]: "", token + "c": "", strings.ToUpper(token): ""} {
		found, ok := tokens.find(sent)
		assert.Equal(t, name, found, "%q", sent)
		assert.Equal(t, name != "", ok)
	}
	_, ok := (*Tokens)(nil).find(token)
	assert.False(t, ok)
}

func TestNewOpenID_RefusesSettings(t *testing.T) {
	good := func() map[string][]byte {
		return map[string][]byte{KeyIssuer: []byte("https://id.example.com/\n"), KeyClientID: []byte("web"), KeyClientSecret: []byte("hidden")}
	}
	provider, err := NewOpenID(good(), egress.Guard{}, time.Now)
	require.NoError(t, err)
	assert.Equal(t, "https://id.example.com/\nweb", provider.ID())
	for key, c := range map[string][2]string{
		KeyIssuer: {"http://id.example.com", "is not https://HOST"}, KeyClientID: {" ", "it has no key client-id"},
		KeyClientSecret: {"", "it has no key client-secret"}, KeyCA: {"x", "no CA certificate"}, KeyGroupsClaim: {strings.Repeat("x", 3000), "more than 2048"},
	} {
		data := good()
		data[key] = []byte(c[0])
		_, err := NewOpenID(data, egress.Guard{}, time.Now)
		require.ErrorContains(t, err, c[1])
		assert.NotContains(t, err.Error(), "hidden")
	}
}

// TestKey_SealsForOnePurpose: what is sealed for one purpose, or beside one text, opens for no
// other.
func TestKey_SealsForOnePurpose(t *testing.T) {
	k := KeyOf([]byte(strings.Repeat("k", 32)))
	sealed := k.sealer("session", "a.example", "shop/web").seal([]byte("text"), "beside")
	text, ok := k.sealer("session", "a.example", "shop/web").open(sealed, "beside")
	assert.True(t, ok)
	assert.Equal(t, "text", string(text))
	for what, s := range map[string]sealer{
		"state": k.sealer("state", "a.example", "shop/web"), "host": k.sealer("session", "b.example", "shop/web"), "App": k.sealer("session", "a.example", "shop/web2"),
		"frames": k.sealer("session", "a.exampleshop", "/web"), "key": KeyOf([]byte(strings.Repeat("l", 32))).sealer("session", "a.example", "shop/web"),
	} {
		_, ok := s.open(sealed, "beside")
		assert.False(t, ok, what)
	}
	_, ok = k.sealer("session", "a.example", "shop/web").open(sealed, "other")
	assert.False(t, ok)
	assert.True(t, k.signingKey("a.example").Equal(k.signingKey("a.example")), "replicas sign alike")
	assert.False(t, k.signingKey("a.example").Equal(k.signingKey("b.example")))
	assert.NotContains(t, k.GoString()+k.String(), "kkkk")
}

func TestSession_Bounds(t *testing.T) {
	d := Demand{App: "shop/web", Key: KeyOf([]byte(strings.Repeat("k", 32))), ProviderID: "p", Emails: []string{Everyone}}
	p := Person{Subject: strings.Repeat("s", maxSubject), Email: strings.Repeat("e", 242) + "@example.com", EmailVerified: true, Name: strings.Repeat("n", maxName)}
	for i := range 32 {
		group := strings.Repeat(string(rune('A'+i)), 100)
		d.Groups, p.Groups = append(d.Groups, group), append(p.Groups, group)
	}
	now := time.Now()
	s, err := d.sessionOf(p, now)
	require.NoError(t, err)
	assert.Len(t, s.Groups, 18, "as many as fit")
	value, err := d.sealSession("host.example", s)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(value), maxCookie)
	again, ok := d.openSession("host.example", value)
	require.True(t, ok)
	assert.Equal(t, s, again)
	assert.True(t, d.current(s, now.Add(sessionFor-time.Second)))
	assert.False(t, d.current(s, now.Add(sessionFor+time.Second)), "it ends")
}

func TestRemoveCookies(t *testing.T) {
	for sent, left := range map[string][]string{
		"a=1": {"a=1"}, "a=1;b=2": {"a=1;b=2"}, "__Host-pipeops-browser=x": nil, "a=1; __Host-pipeops-session-1=x; b=2": {"a=1; b=2"},
		"__Host-pipeops-browser=x;__Host-pipeops-session-1=y": nil, "a=__Host-pipeops-browser": {"a=__Host-pipeops-browser"}, " ; ;__Host-pipeops-browser": nil,
		"": {""},
	} {
		h := http.Header{"Cookie": {sent}}
		RemoveCookies(h)
		if sent == "" {
			assert.Empty(t, h["Cookie"])
			continue
		}
		assert.Equal(t, left, h["Cookie"], sent)
	}
	h := http.Header{"Cookie": {"__Host-pipeops-browser=x", "a=1"}}
	RemoveCookies(h)
	assert.Equal(t, []string{"a=1"}, h["Cookie"])
}

func FuzzCookies(f *testing.F) {
	f.Add("a=1; __Host-pipeops-browser=x")
	f.Fuzz(func(t *testing.T, line string) {
		h := http.Header{"Cookie": {line}}
		value := cookieOf(h, browserCookie)
		RemoveCookies(h)
		if value != "" && cookieOf(h, browserCookie) != "" {
			t.Fatalf("the App gets the cookie of %q", line)
		}
	})
}

func FuzzSession(f *testing.F) {
	d := Demand{App: "shop/web", Key: KeyOf([]byte(strings.Repeat("k", 32))), ProviderID: "p", Emails: []string{Everyone}}
	good, err := d.sealSession("host.example", session{Subject: "1"})
	require.NoError(f, err)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("1.")
	f.Add(good[:10] + "\n" + good[10:])
	f.Fuzz(func(t *testing.T, value string) {
		if _, ok := d.openSession("host.example", value); ok && value != good {
			t.Fatalf("opens %q", value)
		}
	})
}

func FuzzParseTokens(f *testing.F) {
	f.Add("ci", []byte(strings.Repeat("a", minToken)))
	f.Fuzz(func(t *testing.T, name string, token []byte) {
		tokens, err := ParseTokens(map[string][]byte{name: token})
		if err != nil {
			return
		}
		if found, ok := tokens.find(strings.TrimRight(string(token), "\r\n")); !ok || found != name {
			t.Fatalf("%q does not let in", token)
		}
	})
}
