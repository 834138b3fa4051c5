package update

import (
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

func direct(*url.URL) (*url.URL, error) { return nil, nil }

func TestDownload(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere/file":
			http.Redirect(w, r, "http://"+r.Host+"/plain", http.StatusFound)
		case "/away/v1.1.0/file":
			http.Redirect(w, r, "https://localhost:1/file", http.StatusFound)
		case "/missing/file":
			http.NotFound(w, r)
		default:
			_, _ = io.WriteString(w, r.URL.Path)
		}
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for name, c := range map[string]struct {
		d       Download
		url     string
		want    string
		refused string
		passing string
	}{
		"site":       {d: Download{Roots: roots}, url: server.URL + "/r/v1.1.0", want: "/r/v1.1.0/file"},
		"mirror":     {d: Download{Roots: roots, Mirror: server.URL + "/m"}, url: "https://192.0.2.1", want: "/m/v1.1.0/file"},
		"no TLS":     {d: Download{Roots: roots}, url: "http://" + server.Listener.Addr().String(), refused: "not an https URL"},
		"not a URL":  {d: Download{Roots: roots}, url: "", refused: "not an https URL"},
		"other CA":   {d: Download{}, url: server.URL, passing: "certificate"},
		"a query":    {d: Download{Roots: roots}, url: server.URL + "/r?delete=all", refused: "query or a fragment"},
		"a fragment": {d: Download{Roots: roots}, url: server.URL + "/r#top", refused: "query or a fragment"},
		"off mirror": {d: Download{Roots: roots, Mirror: server.URL + "/away"}, url: "https://192.0.2.1", passing: "the mirror leads to another site"},
		"to no TLS":  {d: Download{Roots: roots}, url: server.URL + "/elsewhere", passing: "without TLS"},
		"not there":  {d: Download{Roots: roots}, url: server.URL + "/missing", passing: "404"},
		"no machine": {d: Download{Roots: roots}, url: "https://127.0.0.1:1", passing: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			cand := candidate(t)
			cand.Offer.URL, c.d.Proxy = c.url, direct
			var said bytes.Buffer
			c.d.Log = zerolog.New(&said)
			body, done, err := c.d.Open(t.Context(), cand, release.File{Name: "file"})
			if c.want != "" {
				require.NoError(t, err)
				defer done()
				text, err := io.ReadAll(body)
				require.NoError(t, err)
				assert.Equal(t, c.want, string(text))
				return
			}
			refused := &RefusedError{}
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				require.ErrorAs(t, err, &refused)
				return
			}
			require.EqualError(t, err, "file could not be downloaded (the agent's log says why)", "which the control plane gets to read")
			require.NotErrorAs(t, err, &refused)
			assert.Contains(t, said.String(), c.passing)
		})
	}
}
