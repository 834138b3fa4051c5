package repository

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/scope"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

// trusting is a transport that trusts a test server.
func trusting(s *httptest.Server) *http.Transport {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

// asking lets in who knows the password.
func asking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "ci" || password != "hunter2" {
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const chartYAML = "apiVersion: v2\nname: web\nversion: 1.4.2\n"

var refusal = problemtest.Of

const testIndex = `apiVersion: v1
entries:
  other:
  - urls: [nowhere]
    version: 9.9.9
  web:
  - apiVersion: v2
    urls:
    - charts/web-1.4.2.tgz
    version: 1.4.2
  - urls: [charts/web-1.3.0.tgz]
    version: 1.3.0
  - urls: [charts/web-2.0.0-rc.1.tgz]
    version: 2.0.0-rc.1
  webby:
  - urls: [nowhere]
    version: 1.4.9
generated: "2026-01-02T03:04:05Z"
`

// TestFetch_Repository uses real TLS, and a fake repository that asks for a password.
func TestFetch_Repository(t *testing.T) {
	archive := rendertest.Archive(t, "web/Chart.yaml", chartYAML)
	mux := http.NewServeMux()
	mux.HandleFunc("/charts/index.yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testIndex) })
	mux.HandleFunc("/charts/charts/web-1.4.2.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	s := httptest.NewTLSServer(asking(mux))
	defer s.Close()
	f := New(Options{Transport: trusting(s)})
	get := func(version string, l *Login) ([]byte, error) {
		return f.Chart(t.Context(), runnerapi.ChartSource{Repository: s.URL + "/charts", Name: "web", Version: version}, l)
	}
	ci := loginFor(t, s.URL+"/charts", "hunter2")
	for _, version := range []string{"", "1.4.2", "^1.3", ">1.3 <2"} {
		got, err := get(version, ci)
		require.NoError(t, err, version)
		assert.Equal(t, archive, got)
	}
	for version, field := range map[string]string{"7.0.0": "chart.version", "nonsense!": "chart.version", "1.3.0": "chart"} {
		_, err := get(version, ci)
		assert.Equal(t, field, refusal(t, err).Field, version)
	}
	_, err := get("", nil)
	assert.Contains(t, refusal(t, err).Fix, "credentialsSecret")
	_, err = get("", loginFor(t, s.URL+"/charts", "wrong"))
	assert.Contains(t, refusal(t, err).Fix, "check username and password")
	assert.NotContains(t, err.Error(), "wrong")
	stranger := New(Options{Guard: egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}})
	_, err = stranger.Chart(t.Context(), runnerapi.ChartSource{Repository: s.URL, Name: "web"}, nil)
	assert.Contains(t, refusal(t, err).Detail, "certificate")
	_, err = f.Chart(t.Context(), runnerapi.ChartSource{Repository: "https://charts.invalid", Name: "web"}, nil)
	assert.Equal(t, problem.Invalid, refusal(t, err).Code)
}

// TestFetch_Registry uses real TLS, and go-containerregistry's registry in memory.
func TestFetch_Registry(t *testing.T) {
	archive := rendertest.Archive(t, "web/Chart.yaml", chartYAML)
	s := httptest.NewTLSServer(asking(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "https://")
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(archive, chartLayer))
	require.NoError(t, err)
	for _, tag := range []string{"1.4.2", "1.4.2_build.7"} {
		ref, err := name.NewTag(host + "/charts/web:" + tag)
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, image, remote.WithTransport(trusting(s)), remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: "ci", Password: "hunter2"}))))
	}
	digest, err := image.Digest()
	require.NoError(t, err)
	f := New(Options{Transport: trusting(s)})
	ci := loginFor(t, "oci://"+host+"/charts", "hunter2")
	get := func(version string, l *Login) ([]byte, error) {
		return f.Chart(t.Context(), runnerapi.ChartSource{OCI: "oci://" + host + "/charts/web", Version: version}, l)
	}
	for _, version := range []string{"1.4.2", "1.4.2+build.7", digest.String()} {
		got, err := get(version, ci)
		require.NoError(t, err, version)
		assert.Equal(t, archive, got)
	}
	_, err = get("3.0.0", ci)
	assert.Contains(t, refusal(t, err).Detail, "no such chart")
	_, err = get("1.4.2", nil)
	assert.Contains(t, refusal(t, err).Fix, "credentialsSecret")
	_, err = get("1.4.2", loginFor(t, "oci://"+host, "wrong"))
	assert.Contains(t, refusal(t, err).Fix, "check username and password")
}

// TestFetch_Refusals has other schemes, redirects that lose TLS, and credentials that would go
// elsewhere.
func TestFetch_Refusals(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testIndex) }))
	defer plain.Close()
	var seen []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down/index.yaml":
			http.Redirect(w, r, plain.URL+"/index.yaml", http.StatusFound)
		case "/round/index.yaml":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		case "/up/index.yaml":
			_, _ = io.WriteString(w, "entries:\n  web:\n  - {version: 1.0.0, urls: [../others/web.tgz]}\n")
		case "/hidden/index.yaml":
			_, _ = io.WriteString(w, "entries:\n  web:\n  - {version: 1.0.0, urls: ['charts/%2e%2e%2f..%5c../web.tgz']}\n")
		case "/named/index.yaml":
			_, _ = fmt.Fprintf(w, "entries:\n  web:\n  - {version: 1.0.0, urls: ['https://me:secret@%s/web.tgz']}\n", r.Host)
		case "/moved/index.yaml":
			http.Redirect(w, r, "https://me:secret@"+r.Host+"/index.yaml", http.StatusFound)
		case "/index.yaml":
			_, _ = fmt.Fprintf(w, "entries:\n  web:\n  - {version: 1.0.0, urls: [%q]}\n", other.URL+"/web.tgz")
		}
	}))
	defer s.Close()
	transport := trusting(s)
	transport.TLSClientConfig.RootCAs.AddCert(other.Certificate())
	allowed := New(Options{Transport: transport, HTTPHosts: []string{strings.TrimPrefix(plain.URL, "http://")}})
	f := New(Options{Transport: transport})
	at := func(url string) runnerapi.ChartSource { return runnerapi.ChartSource{Repository: url, Name: "web"} }
	for _, c := range []struct {
		f    *Fetcher
		url  string
		says string
	}{
		{f, plain.URL, "charts are fetched over https"},
		{f, "file:///etc/passwd", "not a URL of a chart's"},
		{f, "ftp://example.com", "charts are fetched over https"},
		{f, "https://me:secret@example.com", "not a URL of a chart's"},
		{f, s.URL + "/down", "from https to http"},
		{allowed, s.URL + "/down", "from https to http"}, // also where the operator allows that host
		{f, s.URL + "/round", "too many redirects"},
		{f, s.URL + "/up", "the repository's URL of web 1.0.0 is none"},
		{f, s.URL + "/hidden", "the repository's URL of web 1.0.0 is none"},
		{f, s.URL + "/named", "holds credentials"},
		{f, s.URL + "/moved", "holds credentials"},
	} {
		_, err := c.f.Chart(t.Context(), at(c.url), nil)
		p := refusal(t, err)
		assert.Contains(t, p.Detail, c.says, c.url)
		assert.NotContains(t, p.Error(), "secret")
	}
	_, err := allowed.Chart(t.Context(), at(plain.URL), nil)
	require.NoError(t, err, "that host may be asked without TLS")
	_, err = f.Chart(t.Context(), at(s.URL), loginFor(t, s.URL, "hunter2"))
	require.NoError(t, err)
	assert.Equal(t, []string{""}, seen, "the login is not for another host")
}

// loginFor is a login for an address and what is below it.
func loginFor(t *testing.T, at, password string) *Login {
	t.Helper()
	s, err := scope.Parse(at)
	require.NoError(t, err)
	return &Login{username: "ci", password: password, scope: s}
}

// TestFetch_LoginStaysInScope tries other paths of the same server, another port, and redirects.
func TestFetch_LoginStaysInScope(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{}
	note := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		user, _, _ := r.BasicAuth()
		seen[r.URL.Path] = user
	}
	port := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(r) }))
	defer port.Close()
	index := func(w http.ResponseWriter, at string) {
		_, _ = fmt.Fprintf(w, "entries:\n  web:\n  - {version: 1.0.0, urls: [%q]}\n", at)
	}
	var s *httptest.Server
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		switch r.URL.Path {
		case "/shop/index.yaml":
			index(w, "web.tgz")
		case "/shop/absolute/index.yaml":
			index(w, s.URL+"/payroll/web.tgz")
		case "/shop/moved/index.yaml":
			http.Redirect(w, r, "/payroll/index.yaml", http.StatusFound)
		case "/shop/ported/index.yaml":
			http.Redirect(w, r, port.URL+"/ported/index.yaml", http.StatusFound)
		case "/shop/back/index.yaml":
			http.Redirect(w, r, "/shop/index.yaml", http.StatusFound)
		case "/payroll/index.yaml":
			index(w, "web.tgz")
		}
	}))
	defer s.Close()
	transport := trusting(s)
	transport.TLSClientConfig.RootCAs.AddCert(port.Certificate())
	f := New(Options{Transport: transport})
	for _, path := range []string{"", "/absolute", "/moved", "/ported", "/back"} {
		_, err := f.Chart(t.Context(), runnerapi.ChartSource{Repository: s.URL + "/shop" + path, Name: "web"}, loginFor(t, s.URL+"/shop", "hunter2"))
		if path != "/ported" { // whose index is none
			require.NoError(t, err, path)
		}
	}
	assert.Equal(t, map[string]string{
		"/shop/index.yaml": "ci", "/shop/web.tgz": "ci", "/shop/back/web.tgz": "ci",
		"/shop/absolute/index.yaml": "ci", "/shop/moved/index.yaml": "ci", "/shop/ported/index.yaml": "ci", "/shop/back/index.yaml": "ci",
		"/payroll/web.tgz": "", "/payroll/index.yaml": "", "/ported/index.yaml": "", "/shop/moved/web.tgz": "ci",
	}, seen)
}

// Otherwise a Runner could send any Secret's password anywhere.
func TestFetch_SecretNamesRepository(t *testing.T) {
	data := func(at string) map[string][]byte {
		return map[string][]byte{"url": []byte(at), "username": []byte("ci"), "password": []byte("hunter2")}
	}
	repository := runnerapi.ChartSource{Repository: "https://charts.example.com/shop"}
	l, err := ReadLogin("chart-login", data("https://charts.example.com/shop\n"), repository)
	require.NoError(t, err)
	assert.Equal(t, "ci", l.username)
	_, err = ReadLogin("chart-login", data("oci://charts.example.com"), runnerapi.ChartSource{OCI: "oci://charts.example.com/shop/web"})
	require.NoError(t, err)
	for at, says := range map[string]string{
		"":                                     "has no url",
		"nonsense":                             "has a url that is none",
		"https://charts.example.com/payroll":   "is not for this repository",
		"https://charts.example.com:8443/shop": "is not for this repository",
		"https://evil.example.com/shop":        "is not for this repository",
		"oci://charts.example.com/shop":        "is not for this repository",
	} {
		_, err := ReadLogin("chart-login", data(at), repository)
		p := refusal(t, err)
		assert.Contains(t, p.Detail, says, at)
		assert.Equal(t, "chart.credentialsSecret", p.Field)
		assert.NotContains(t, p.Error(), "hunter2")
	}
	_, err = ReadLogin("chart-login", map[string][]byte{"url": []byte("https://charts.example.com"), "username": []byte("ci")}, repository)
	assert.Contains(t, refusal(t, err).Detail, "lacks username or password")
}

func TestFetch_RefusesTooLarge(t *testing.T) {
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/many/"):
			_, _ = io.WriteString(w, "entries:\n  web:\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(w, "  - version: 1.0.%d\n", i); err != nil {
					return
				}
			}
		case r.URL.Path == "/big/index.yaml":
			_, _ = io.WriteString(w, "entries:\n  web:\n  - {version: 1.0.0, urls: [web.tgz]}\n")
		default:
			zeros := make([]byte, 1<<20)
			for {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		}
	})
	s := httptest.NewTLSServer(endless)
	defer s.Close()
	f := New(Options{Transport: trusting(s)})
	for _, path := range []string{"/zeros", "/many/", "/big"} {
		_, err := f.Chart(t.Context(), runnerapi.ChartSource{Repository: s.URL + path, Name: "web"}, nil)
		assert.Equal(t, problem.TooLarge, refusal(t, err).Code, path)
	}
}

func TestIndex_EachForm(t *testing.T) {
	want := []entry{{"1.4.2", []string{"a"}}}
	for what, text := range map[string]string{
		"block":          "apiVersion: v1\nentries:\n  other:\n  - version: 1\n  web:\n  - version: 1.4.2\n    urls: [a]\n  zoo:\n  - version: 3\n",
		"deeper":         "entries:\n    web:\n        - version: 1.4.2\n          urls:\n              - a\n    zoo: []\n",
		"quoted":         "entries:\n  \"web\":\n  - version: 1.4.2\n    urls: [a]\n",
		"windows":        "entries:\r\n  web:\r\n  - version: 1.4.2\r\n    urls: [a]\r\n",
		"JSON":           `{"apiVersion":"v1","entries":{"web":[{"version":"1.4.2","urls":["a"]}]}}`,
		"after others":   "serverInfo:\n  web:\n  - version: 7\nentries:\n  web:\n  - version: 1.4.2\n    urls: [a]\ngenerated: now\n",
		"a long line":    "entries:\n  other:\n  - description: " + strings.Repeat("x", 200<<10) + "\n  web:\n  - version: 1.4.2\n    urls: [a]\n",
		"text that lies": "entries:\n  other:\n  - description: |\n      web:\n      - version: 6\n  web:\n  - version: 1.4.2\n    urls: [a]\n",
	} {
		got, err := entriesOf(strings.NewReader(text), "web")
		require.NoError(t, err, what)
		assert.Equal(t, want, got, what)
	}
	for what, text := range map[string]string{
		"a page": "<html><body>no</body></html>", "nothing": "", "a bomb": "entries:\n  web:\n  - version: &a [x,x]\n    urls: [*a, *b]\n",
		"a bomb of texts":       "entries:\n  web:\n  - version: &a " + strings.Repeat("x", 100<<10) + "\n    urls: [" + strings.Repeat("*a,", 900) + "*a]\n",
		"a bomb in JSON's form": `{"x": &a "` + strings.Repeat("x", 100<<10) + `", "entries": {"web": [{"urls": [` + strings.Repeat("*a,", 900) + `*a]}]}}`,
	} {
		_, err := entriesOf(strings.NewReader(text), "web")
		assert.Equal(t, problem.Invalid, refusal(t, err).Code, what)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(testIndex)
	f.Add(`{"entries":{"web":[{"version":"1"}]}}`)
	f.Add("entries:\n  web:\n  - urls: [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := entriesOf(strings.NewReader(text), "web")
		if err == nil {
			_, _ = newest(entries, runnerapi.ChartSource{Name: "web", Version: "^1"})
		}
	})
}

// TestFetch_RefusesLoopback has an index refer to an address that the guard refuses.
func TestFetch_RefusesLoopback(t *testing.T) {
	var inside int
	metadata := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside++ }))
	defer metadata.Close()
	outside := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "apiVersion: v1\nentries:\n  shop:\n    - {name: shop, version: 1.0.0, urls: ['"+metadata.URL+"/shop.tgz']}\n")
	}))
	require.NoError(t, outside.Listener.Close())
	var err error
	outside.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.7.7.7:0")
	require.NoError(t, err)
	outside.Start()
	defer outside.Close()

	f := New(Options{
		HTTPHosts: []string{"127.0.0.1", "127.7.7.7", "169.254.169.254"},
		Guard:     egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.7.7.7/32")}, Hosts: egress.EveryHost},
	})
	for name, source := range map[string]runnerapi.ChartSource{
		"what an index refers to": {Repository: outside.URL, Name: "shop", Version: "1.0.0"},
		"a repository":            {Repository: metadata.URL, Name: "shop"},
		"a registry":              {OCI: "oci://169.254.169.254/charts/shop", Version: "1.0.0"},
	} {
		_, err := f.Chart(t.Context(), source, nil)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known, name)
		assert.Equal(t, problem.Invalid, known.Code, name)
		assert.Contains(t, known.Detail, "loopback, link-local or metadata address", name)
		assert.Contains(t, known.Fix, egress.Setting, name)
	}
	assert.Zero(t, inside)
}
