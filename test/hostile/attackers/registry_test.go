package attackers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registry is what a hostile image registry answers to each kind of request; nil is what an honest
// one does.
type registry struct {
	name, tries           string
	ping, manifest, blobs http.HandlerFunc
	want                  []string
}

// ServeHTTP implements http.Handler, below /v2/.
func (g registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pick := func(theirs, honest http.HandlerFunc) {
		if theirs == nil {
			theirs = honest
		}
		theirs(w, r)
	}
	switch {
	case r.URL.Path == "/":
		pick(g.ping, text("{}"))
	case strings.Contains(r.URL.Path, "/manifests/"):
		pick(g.manifest, ociManifest(imageManifest(goodArchive)))
	case strings.Contains(r.URL.Path, "/blobs/"):
		pick(g.blobs, blob)
	default:
		http.NotFound(w, r)
	}
}

var (
	goodArchive = pack(map[string]string{"templates/a.yaml": configMap("a: b")})
	ociConfig   = []byte(`{"name":"guide","version":"1.0.0","apiVersion":"v2"}`)
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// imageManifest is that of a chart.
func imageManifest(archive []byte) string {
	return manifestOf(digest(archive), int64(len(archive)))
}

func manifestOf(layer string, size int64) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip","digest":%q,"size":%d}]}`,
		manifestType, digest(ociConfig), len(ociConfig), layer, size)
}

func ociManifest(body string) http.HandlerFunc { return typed(manifestType, text(body)) }

func typed(mediaType string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		h(w, r)
	}
}

// blob gives what the honest manifest names.
func blob(w http.ResponseWriter, r *http.Request) {
	for _, data := range [][]byte{goodArchive, ociConfig} {
		if strings.HasSuffix(r.URL.Path, digest(data)) {
			_, _ = w.Write(data)
			return
		}
	}
	http.NotFound(w, r)
}

// asks answers 401, and says where a token is to be had.
func asks(challenge string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// failing answers with an error of the registry's own words.
func failing(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":%q}]}`, message)
	}
}

// TestHelmRelease_HostileRegistry has an honest Runner deploy charts out of registries that mean
// ill. Images of Apps are not the agent's to fetch: the node's kubelet does.
func TestHelmRelease_HostileRegistry(t *testing.T) {
	setPolicy(t, repositories)
	enforceBaseline(t)
	c := newCaller(t, honest)
	deploy := func(ctx context.Context, name string, g registry) answer {
		here := serve(t)
		here.attempts["v2"] = g.ServeHTTP
		host := strings.TrimPrefix(here.URL, "http://")
		secret := "login-" + name
		login(t, secret, "oci://"+host)
		return c.call(ctx, http.MethodPut, "/v1/namespaces/production/releases/"+name, map[string]any{
			"chart": map[string]any{"oci": "oci://" + host + "/charts/guide", "version": "1.0.0", "credentialsSecret": secret}, "timeout": "10s",
		}, nil)
	}
	s := open(t, func() {
		got := deploy(t.Context(), "oci-good", registry{})
		require.Less(t, got.status, 300, "%v", got)
		awaitRelease(t, "oci-good")
	})
	thief := serve(t).add("thief", s.thief)
	var calls []attempt
	for i, g := range registries(thief) {
		calls = append(calls, attempt{name: g.name, tries: g.tries, want: g.want, do: func(ctx context.Context, _ *caller) answer {
			return deploy(ctx, fmt.Sprintf("oci-evil-%d", i), g)
		}})
	}
	s.try(t, c, calls)
	s.close()
	got := deploy(t.Context(), "oci-good-2", registry{})
	assert.Less(t, got.status, 300, "honest charts are deployed: %v", got)
}

func registries(thief string) []registry {
	large := manifestOf(digest(goodArchive), 1<<40)
	wrong := digest([]byte("another"))
	metadata := "https://169.254.169.254/latest/"
	// Names of a Secret's password are the thief's to hear: what the registry answers then is right
	// or not, as long as nothing is sent.
	unavailable := []string{"503 unavailable", "422 invalid"}
	return []registry{
		{name: "a manifest of 100 MiB", tries: "fill the agent's memory", manifest: typed(manifestType, stream(100<<20, " ")), want: either},
		{name: "a manifest of 3 MiB of layers", tries: "fill the agent's memory", manifest: ociManifest(`{"schemaVersion":2,"layers":[` + strings.Repeat("{},", 1<<20) + `{}]}`), want: either},
		{name: "a manifest of 3 MiB of annotations", tries: "fill the agent's memory", manifest: ociManifest(`{"schemaVersion":2,"annotations":{` + annotations(150_000) + `}}`), want: either},
		{name: "a manifest of brackets", tries: "overflow a stack", manifest: ociManifest(strings.Repeat("[", 1<<20)), want: either},
		{name: "a manifest that drips", tries: "hold the agent's call", manifest: typed(manifestType, drip(" ")), want: []string{"422 invalid", "504 timeout"}},
		{name: "a manifest without layers", tries: "crash the reader", manifest: ociManifest(`{"schemaVersion":2}`), want: invalid},
		{name: "a manifest of null", tries: "crash the reader", manifest: ociManifest("null"), want: invalid},
		{name: "a manifest of no JSON", tries: "have it quoted", manifest: ociManifest("\x1b[2J\u202e"), want: invalid},
		{name: "a manifest of another type", tries: "reach another decoder", manifest: typed("application/vnd.docker.distribution.manifest.v1+prettyjws", text("{}")), want: invalid},
		{name: "a layer of a terabyte", tries: "have memory reserved", manifest: ociManifest(large), want: either},
		{name: "a layer of a negative size", tries: "have memory reserved", manifest: ociManifest(manifestOf(digest(goodArchive), -1)), want: append(append([]string{}, either...), "202", "200")},
		{name: "a layer of another digest", tries: "give something else", manifest: ociManifest(manifestOf(wrong, int64(len(goodArchive)))), blobs: text(string(goodArchive)), want: invalid},
		{name: "a digest that climbs", tries: "reach another path", manifest: ociManifest(manifestOf("sha256:../../../secret", 10)), want: invalid},
		{name: "a digest of another kind", tries: "go without verification", manifest: ociManifest(manifestOf("md5:0123456789abcdef0123456789abcdef", 10)), want: invalid},
		{name: "an empty digest", tries: "go without verification", manifest: ociManifest(manifestOf("", 10)), want: invalid},
		{name: "a layer without end", tries: "fill the agent's memory", blobs: stream(100<<20, "a"), want: either},
		{name: "a layer that breaks off", tries: "have half a chart", blobs: text(string(goodArchive[:50])), want: invalid},
		{name: "a layer that drips", tries: "hold the agent's call", blobs: drip("a"), want: []string{"422 invalid", "504 timeout"}},
		{name: "a layer in gzip", tries: "unpack to gigabytes", blobs: zipped(1 << 30), want: either},
		{name: "an index of itself", tries: "recurse without end", manifest: typed(indexType, text(indexOf("sha256:"+strings.Repeat("0", 64)))), want: invalid},
		{name: "an index of nothing", tries: "crash the reader", manifest: typed(indexType, text(`{"schemaVersion":2,"manifests":[]}`)), want: invalid},
		{name: "an index of a million", tries: "fill the agent's memory", manifest: typed(indexType, text(`{"schemaVersion":2,"manifests":[`+strings.Repeat("{},", 1<<20)+`{}]}`)), want: either},
		{name: "a realm elsewhere", tries: "have the login sent elsewhere", ping: asks(`Bearer realm="` + thief + `/token",service="a"`), want: invalid},
		{name: "a realm at the metadata address", tries: "read the cloud's credentials", ping: asks(`Bearer realm="` + metadata + `",service="a"`), want: invalid},
		{name: "a realm in a file", tries: "read a file", ping: asks(`Bearer realm="file:///etc/passwd",service="a"`), want: invalid},
		{name: "a realm of the agent itself", tries: "read its health port", ping: asks(`Bearer realm="https://127.0.0.1:8080/"`), want: invalid},
		{name: "a realm without a URL", tries: "crash the reader", ping: asks(`Bearer`), want: invalid},
		{name: "an unknown scheme", tries: "crash the reader", ping: asks(`Evil a="b"`), want: lets},
		{name: "a redirect of a layer elsewhere", tries: "have the login sent elsewhere", blobs: moved(thief), want: invalid},
		{name: "a redirect of a manifest elsewhere", tries: "have the login sent elsewhere", manifest: moved(thief), want: invalid},
		{name: "a redirect of a layer to the metadata address", tries: "read the cloud's credentials", blobs: moved(metadata), want: invalid},
		{name: "a redirect of a manifest to the agent itself", tries: "read its health port", manifest: moved("https://localhost:8080/metrics"), want: invalid},
		{name: "a redirect of the ping to a file", tries: "read a file", ping: moved("file:///etc/passwd"), want: invalid},
		{name: "an error of control characters", tries: "write into a terminal", manifest: failing("\x1b[2J\u202e"), want: invalid},
		{name: "an error of a MiB", tries: "fill logs", manifest: failing(strings.Repeat("a", 1<<20)), want: invalid},
		{name: "a header of 64 MiB", tries: "fill the agent's memory", manifest: longHeader, want: invalid},
		{name: "an error that never ends", tries: "have it tried for ever", manifest: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "again", http.StatusServiceUnavailable) }, want: unavailable},
	}
}

func annotations(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `"%d":"a",`, i)
	}
	return out.String() + `"z":"a"`
}

func indexOf(manifest string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":10}]}`, indexType, indexType, manifest)
}
