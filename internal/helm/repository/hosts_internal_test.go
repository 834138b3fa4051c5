package repository

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

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
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

// elsewhere is the same server by another name.
func elsewhere(r *http.Request) string {
	return "http://" + strings.Replace(r.Host, "127.0.0.1", "localhost", 1)
}

// chartsOfTwoHosts has repositories and a registry that lead from 127.0.0.1 to localhost. It counts
// the requests at localhost.
func chartsOfTwoHosts(t *testing.T) (server *httptest.Server, beyond *atomic.Int64) {
	t.Helper()
	archive, images := rendertest.Archive(t, "web/Chart.yaml", chartYAML), registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	beyond = &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("/web.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	mux.HandleFunc("/index/index.yaml", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "entries:\n  web:\n  - {version: 1.4.2, urls: ['"+elsewhere(r)+"/web.tgz']}\n")
	})
	mux.HandleFunc("/here/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "entries:\n  web:\n  - {version: 1.4.2, urls: [moved.tgz]}\n")
	})
	mux.HandleFunc("/here/moved.tgz", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere(r)+"/web.tgz", http.StatusFound)
	})
	mux.Handle("/v2/", images)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.Host, "localhost"):
			beyond.Add(1)
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"): // as registries with a store elsewhere
			http.Redirect(w, r, elsewhere(r)+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(archive, chartLayer))
	require.NoError(t, err)
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://")+"/charts/web:1.4.2", name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image))
	beyond.Store(0)
	return server, beyond
}

// TestFetch_OnlyListedHosts applies the current policy, also where an index, a redirect or a
// registry leads to another host.
func TestFetch_OnlyListedHosts(t *testing.T) {
	server, beyond := chartsOfTwoHosts(t)
	owner := policy.New("ConfigMap pipeops/pipeops-policy")
	allow := func(text string) {
		doc, err := policy.Parse([]byte(text))
		require.NoError(t, err)
		owner.Set(doc, nil)
	}
	f := New(Options{
		HTTPHosts: []string{"127.0.0.1", "localhost"},
		Guard:     egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, Hosts: owner.FetchHosts},
	})
	sources := map[string]runnerapi.ChartSource{
		"an index":   {Repository: server.URL + "/index", Name: "web"},
		"a redirect": {Repository: server.URL + "/here", Name: "web"},
		"a registry": {OCI: strings.Replace(server.URL, "http://", "oci://", 1) + "/charts/web", Version: "1.4.2"},
	}
	for _, text := range []string{"", "fetchHosts: ['127.0.0.1', localhost]", "fetchHosts: ['*']"} {
		allow(text)
		for what, source := range sources {
			_, err := f.Chart(t.Context(), source, nil)
			require.NoError(t, err, "%s: %s", what, text)
		}
	}
	before := beyond.Load()
	assert.Positive(t, before)
	for text, host := range map[string]string{"fetchHosts: ['127.0.0.1']": "localhost", "fetchHosts: [localhost]": "127.0.0.1", "fetchHosts: []": "127.0.0.1"} {
		allow(text)
		for what, source := range sources {
			_, err := f.Chart(t.Context(), source, nil)
			known := refusal(t, err)
			assert.Equal(t, problem.Invalid, known.Code, what)
			assert.Equal(t, "chart", known.Field, what)
			assert.Contains(t, known.Detail, `fetchHosts in the customer's policy does not list the host "`+host+`"`, what)
			assert.Contains(t, known.Fix, "fetchHosts in ConfigMap pipeops/pipeops-policy", what)
		}
	}
	assert.Equal(t, before, beyond.Load())
}
