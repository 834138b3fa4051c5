package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
)

// visit is a request as the gateway passes it on. Its word is why there was no answer of the
// backend, which answers with what it was told of the user.
type visit struct {
	url, host, path, from, user, password string
	body                                  io.Reader
}

func (v visit) do(t *testing.T) (word, text string, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.url+v.path, v.body)
	require.NoError(t, err)
	r.Host = v.host
	r.Header.Set("X-Real-Ip", v.from)
	if v.user != "" {
		r.SetBasicAuth(v.user, v.password)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.Header.Get(gatewaywire.HeaderFailed), string(answer), resp.StatusCode
}

// guarded serves one host with a route for /admin, which demands something, and one for /, which
// does not.
func guarded(t *testing.T, v gateway.Visitors) (visit, *gateway.Handler, []gateway.Route) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "user "+r.Header.Get("X-Forwarded-User")+" authorization "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(srv.Close)
	to := []string{srv.Listener.Addr().String()}
	h := gateway.NewHandler(nil, zerolog.Nop())
	routes := []gateway.Route{
		{Host: "a.example.org", Path: "/", PathType: "Prefix", Addresses: to},
		{Host: "a.example.org", Path: "/admin", PathType: "Prefix", Addresses: to, Visitors: v},
	}
	h.Set(routes)
	return visit{url: start(t, h), host: "a.example.org", path: "/admin", from: "203.0.113.9"}, h, routes
}

func users(t *testing.T, cost int) *htpasswd.File {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), cost)
	require.NoError(t, err)
	f, err := htpasswd.Parse([]byte("anna:" + string(hash)))
	require.NoError(t, err)
	return f
}

func TestVisitors_AllowFrom(t *testing.T) {
	v, _, _ := guarded(t, gateway.Visitors{AllowFrom: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("2001:db8::/32")}})
	for from, want := range map[string]string{
		"203.0.113.9": "", "::ffff:203.0.113.9": "", "2001:db8::1": "", "203.0.113.16": "denied", "2001:db9::1": "denied", "": "denied", "203.0.113.9, 10.0.0.1": "denied",
	} {
		v.from = from
		word, _, status := v.do(t)
		assert.Equal(t, want, word, from)
		assert.Equal(t, want == "denied", status == http.StatusForbidden, from)
	}
	for path, want := range map[string]string{
		"/": "", "/other": "", "/admin/x": "denied", "/%61dmin": "denied", "/x/../admin": "ambiguous", "/x/..%2fadmin": "ambiguous", "/admin%2fx": "ambiguous", "//admin": "ambiguous",
	} {
		v.path, v.from = path, "198.51.100.1"
		word, _, _ := v.do(t)
		assert.Equal(t, want, word, path)
	}
}

func TestVisitors_BasicAuth(t *testing.T) {
	v, h, routes := guarded(t, gateway.Visitors{Users: users(t, bcrypt.MinCost)})
	word, _, status := v.do(t)
	assert.Equal(t, gatewaywire.Unauthorized, word)
	assert.Equal(t, http.StatusUnauthorized, status)

	v.user, v.password = "anna", "right"
	for range 2 { // the second time it is remembered
		word, text, _ := v.do(t)
		assert.Empty(t, word)
		assert.Equal(t, "user anna authorization ", text)
	}
	other := v
	other.path = "/" // there, the App has users of its own
	_, text, _ := other.do(t)
	assert.Equal(t, "user  authorization Basic YW5uYTpyaWdodA==", text)

	v.password = "wrong"
	words := map[string]int{}
	for range 12 {
		word, _, _ := v.do(t)
		words[word]++
	}
	assert.Equal(t, map[string]int{gatewaywire.Unauthorized: 10, gatewaywire.TooMany: 2}, words)
	v.password = "right"
	word, _, _ = v.do(t)
	assert.Empty(t, word, "the user stays signed in")
	elsewhere := v
	elsewhere.from, elsewhere.password = "198.51.100.1", "wrong"
	word, _, _ = elsewhere.do(t)
	assert.Equal(t, gatewaywire.Unauthorized, word, "other addresses have their own count")

	h.Set(routes)
	word, _, _ = v.do(t)
	assert.Empty(t, word, "the same routes again forget nothing")
	routes[1].Visitors.Users = users(t, bcrypt.MinCost+1)
	h.Set(routes)
	v.password = "right"
	word, _, _ = v.do(t)
	assert.Empty(t, word, "a new file has counted nothing")
}

// TestVisitors_GuessesAtOnce counts wrong passwords that come at the same time, and checks a right
// one once for all requests that bring it.
func TestVisitors_GuessesAtOnce(t *testing.T) {
	v, _, _ := guarded(t, gateway.Visitors{Users: users(t, 10)})
	words := func(password func(n int) string) map[string]int {
		var (
			mu    sync.Mutex
			group sync.WaitGroup
			all   = map[string]int{}
		)
		for n := range 60 {
			group.Go(func() {
				visit := v
				visit.user, visit.password = "anna", password(n)
				word, _, _ := visit.do(t)
				mu.Lock()
				defer mu.Unlock()
				all[word]++
			})
		}
		group.Wait()
		return all
	}
	assert.Equal(t, map[string]int{"": 60}, words(func(int) string { return "right" }))
	guesses := words(strconv.Itoa)
	assert.LessOrEqual(t, guesses[gatewaywire.Unauthorized], 12, guesses)
	assert.Zero(t, guesses[""])
}

func TestVisitors_RequestsPerSecond(t *testing.T) {
	v, _, _ := guarded(t, gateway.Visitors{PerSecond: 2})
	words := map[string]int{}
	for range 12 {
		word, _, _ := v.do(t)
		words[word]++
	}
	assert.Equal(t, 12, words[""]+words[gatewaywire.TooMany])
	assert.GreaterOrEqual(t, words[""], 10, "a burst of five seconds")
	assert.Positive(t, words[gatewaywire.TooMany])
	v.from = "198.51.100.1"
	word, _, _ := v.do(t)
	assert.Empty(t, word)
}

func TestVisitors_MaxBody(t *testing.T) {
	v, _, _ := guarded(t, gateway.Visitors{MaxBodyBytes: 1000})
	for size, want := range map[int]string{0: "", 1000: "", 1001: gatewaywire.TooLarge, 1 << 20: gatewaywire.TooLarge} {
		v.body = strings.NewReader(strings.Repeat("a", size))
		word, _, _ := v.do(t)
		assert.Equal(t, want, word, size)
		v.body = io.MultiReader(strings.NewReader(strings.Repeat("a", size))) // of no known length
		word, _, status := v.do(t)
		assert.Equal(t, want, word, size)
		assert.Equal(t, want != "", status == http.StatusRequestEntityTooLarge)
	}
}
