package helm

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

// TestARegistryThatPours has a registry answer with 1 GiB in place of everything that is asked of
// it: that costs the agent little, and is refused by name. A blob is not read beyond the size that its
// manifest says.
func TestARegistryThatPours(t *testing.T) {
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
			f := newFetcher(Options{Transport: trusting(s)})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := f.chart(t.Context(), runnerapi.ChartSource{OCI: strings.Replace(s.URL, "https", "oci", 1) + "/web", Version: "1.0.0"}, nil)
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
