package update

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

func direct(*url.URL) (*url.URL, error) { return nil, nil }

func TestFilesComeFromTheSiteOrTheMirror(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere/file":
			http.Redirect(w, r, "http://"+r.Host+"/plain", http.StatusFound)
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
		"no TLS":     {d: Download{Roots: roots}, url: "http://" + server.Listener.Addr().String(), refused: "no https URL"},
		"no URL":     {d: Download{Roots: roots}, url: "", refused: "no https URL"},
		"other CA":   {d: Download{}, url: server.URL, passing: "certificate"},
		"to no TLS":  {d: Download{Roots: roots}, url: server.URL + "/elsewhere", passing: "without TLS"},
		"not there":  {d: Download{Roots: roots}, url: server.URL + "/missing", passing: "404"},
		"no machine": {d: Download{Roots: roots}, url: "https://127.0.0.1:1", passing: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			cand := candidate(t)
			cand.Offer.URL, c.d.Proxy = c.url, direct
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
			require.ErrorContains(t, err, c.refused+c.passing)
			if c.refused != "" {
				require.ErrorAs(t, err, &refused)
			} else {
				require.NotErrorAs(t, err, &refused)
			}
		})
	}
}
