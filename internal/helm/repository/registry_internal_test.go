package repository

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// pour answers with up to 1 GiB, and counts what was taken of it.
func pour(w http.ResponseWriter, taken *atomic.Int64) {
	block := []byte(strings.Repeat(" ", 1<<20))
	for range 1 << 10 {
		n, err := w.Write(block)
		taken.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// TestRegistry_EndlessResponse has a registry answer with 1 GiB in place of everything that is
// asked of it: that costs the agent little, and is refused by name. A blob is not read beyond the
// size that its manifest says.
func TestRegistry_EndlessResponse(t *testing.T) {
	const manifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:0f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":2},` +
		`"layers":[{"mediaType":"` + chartLayer + `","digest":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":2}]}`
	for name, c := range map[string]struct {
		pours, length string
		code          problem.Code
		says          string
	}{
		"a manifest":                  {"/v2/web/manifests/1.0.0", "", problem.TooLarge, "manifest, or another of its answers, has more than 1 MiB"},
		"a manifest, with its length": {"/v2/web/manifests/1.0.0", strconv.Itoa(1 << 30), problem.TooLarge, "manifest, or another of its answers, has more than 1 MiB"},
		"a blob":                      {"/v2/web/blobs/sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "", problem.Invalid, "the chart's archive breaks off"},
		"a blob that is elsewhere":    {"/store", "", problem.Invalid, "the chart's archive breaks off"},
	} {
		t.Run(name, func(t *testing.T) {
			var taken atomic.Int64
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == c.pours:
					w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					if c.length != "" {
						w.Header().Set("Content-Length", c.length)
					}
					pour(w, &taken)
				case strings.Contains(r.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					_, _ = io.WriteString(w, manifest)
				case strings.Contains(r.URL.Path, "/blobs/"):
					http.Redirect(w, r, "/store", http.StatusTemporaryRedirect)
				}
			}))
			defer s.Close()
			f := New(Options{Transport: trusting(s)})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := f.Chart(t.Context(), runnerapi.ChartSource{OCI: strings.Replace(s.URL, "https", "oci", 1) + "/web", Version: "1.0.0"}, nil)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			known := refusal(t, err)
			assert.Contains(t, known.Detail, c.says)
			assert.Equal(t, c.code, known.Code, known.Detail)
			assert.Equal(t, "chart", known.Field)
			assert.Less(t, taken.Load(), int64(64<<20), "the rest stays where it is")
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
		})
	}
}

// realms has a registry that names the token server at realm, and token servers that count the
// passwords they are sent.
func realms(t *testing.T, realm func(registry, other string) string) (registry, other *httptest.Server, sent *atomic.Int64) {
	t.Helper()
	sent = &atomic.Int64{}
	token := func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			sent.Add(1)
		}
		_, _ = io.WriteString(w, `{"token":"t"}`)
	}
	other = httptest.NewTLSServer(http.HandlerFunc(token))
	t.Cleanup(other.Close)
	registry = httptest.NewUnstartedServer(nil)
	registry.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			token(w, r)
		case r.URL.Path == "/leads-away":
			http.Redirect(w, r, byName(other.URL)+"/token", http.StatusTemporaryRedirect)
		case r.Header.Get("Authorization") == "Bearer t":
			http.NotFound(w, r)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm(registry.URL, other.URL)+`",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	registry.StartTLS()
	t.Cleanup(registry.Close)
	return registry, other, sent
}

// byName is a server's address by the name localhost, which no library takes for an address.
func byName(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) }

func TestRegistry_LoginStaysInRealm(t *testing.T) {
	for what, c := range map[string]struct {
		realm func(registry, other string) string
		trust bool // the Secret names the other server
		sent  int64
		says  string
	}{
		"the registry's own":     {func(registry, _ string) string { return registry + "/token" }, false, 1, "has no such chart"},
		"another host":           {func(_, other string) string { return byName(other) + "/token" }, false, 0, "wants the login to be sent to https://localhost:"},
		"by a redirect":          {func(registry, _ string) string { return registry + "/leads-away" }, false, 0, "has no such chart"},
		"one that is trusted":    {func(_, other string) string { return byName(other) + "/token" }, true, 1, "has no such chart"},
		"below one that is":      {func(_, other string) string { return byName(other) + "/token/more" }, true, 1, "has no such chart"},
		"beside one that is":     {func(_, other string) string { return byName(other) + "/steal" }, true, 0, "wants the login"},
		"the same without TLS":   {func(registry, _ string) string { return strings.Replace(registry, "https", "http", 1) + "/token" }, false, 0, "cannot be fetched"},
		"a name of its own host": {func(registry, _ string) string { return byName(registry) + "/token" }, false, 0, "wants the login"},
	} {
		t.Run(what, func(t *testing.T) {
			registry, other, sent := realms(t, c.realm)
			chart := runnerapi.ChartSource{OCI: strings.Replace(registry.URL, "https", "oci", 1) + "/web", Version: "1.0.0"}
			data := map[string][]byte{keyURL: []byte(chart.OCI), keyUsername: []byte("ci"), keyPassword: []byte("hunter2")}
			if c.trust {
				data[keyRealm] = []byte(byName(other.URL) + "/token")
			}
			l, err := ReadLogin("chart-login", data, chart)
			require.NoError(t, err)
			transport := trusting(registry)
			transport.TLSClientConfig.InsecureSkipVerify = true // the servers' certificate does not name localhost
			_, err = New(Options{Transport: transport}).Chart(t.Context(), chart, l)
			require.Error(t, err)
			assert.Contains(t, refusal(t, err).Detail, c.says)
			assert.Equal(t, c.sent, sent.Load(), "how often the password was sent")
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := ReadLogin("chart-login", map[string][]byte{
		keyURL: []byte("oci://r.example.com"), keyUsername: []byte("ci"), keyPassword: []byte("p"), keyRealm: []byte("auth.example.com"),
	}, runnerapi.ChartSource{OCI: "oci://r.example.com/web"})
	assert.Contains(t, refusal(t, err).Fix, "correct the key realm")
}

// byHost has the registry's requests go to it, and all others through the guard.
type byHost struct {
	host        string
	own, others http.RoundTripper
}

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == b.host {
		return b.own.RoundTrip(r)
	}
	return b.others.RoundTrip(r)
}

// TestRegistry_RealmCheckedAfterResolution has a Secret that trusts the realm, and no Secret.
func TestRegistry_RealmCheckedAfterResolution(t *testing.T) {
	registry, _, sent := realms(t, func(_, other string) string { return byName(other) + "/token" })
	f := New(Options{Transport: byHost{
		host: strings.TrimPrefix(registry.URL, "https://"), own: trusting(registry), others: egress.Guard{Hosts: egress.EveryHost}.Transport(trusting(registry)),
	}})
	_, err := f.Chart(t.Context(), runnerapi.ChartSource{OCI: strings.Replace(registry.URL, "https", "oci", 1) + "/web", Version: "1.0.0"}, nil)
	require.Error(t, err)
	assert.Contains(t, refusal(t, err).Detail, "is a loopback, link-local or metadata address")
	assert.Zero(t, sent.Load())
}
