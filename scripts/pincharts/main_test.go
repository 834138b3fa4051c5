package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

var fakeCharts = []components.Chart{
	{Repository: "https://one.example.com", Name: "one", Version: "1.0.0"},
	{Repository: "https://two.example.com", Name: "two", Version: "v2.0.0"},
}

// fakeRepository serves fakeCharts, as one mirror of their repositories.
func fakeRepository(t *testing.T) *upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index.yaml" {
			_, _ = w.Write(packed(t, r.URL.Path))
			return
		}
		fmt.Fprint(w, "apiVersion: v1\nentries:\n")
		for _, c := range fakeCharts {
			fmt.Fprintf(w, "  %s:\n  - version: %s\n    urls: [%s.tgz]\n", c.Name, c.Version, c)
		}
	}))
	t.Cleanup(s.Close)
	return &upstream{
		mirror: s.URL, digests: filepath.Join(t.TempDir(), "digests.yaml"),
		fetch: repository.New(repository.Options{
			HTTPHosts: []string{"127.0.0.1"}, Guard: egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost},
		}),
	}
}

// packed returns the archive of a chart that holds one file.
func packed(t *testing.T, content string) []byte {
	t.Helper()
	return rendertest.Archive(t, "chart/Chart.yaml", content)
}

// TestCharts_PinThenDownload does what `make pin-charts` and `make charts` do.
func TestCharts_PinThenDownload(t *testing.T) {
	cache := t.TempDir()
	u := fakeRepository(t)
	require.NoError(t, u.pin(t.Context(), fakeCharts))
	require.NoError(t, u.download(t.Context(), cache, fakeCharts))
	for _, name := range []string{"one-1.0.0.tgz", "two-v2.0.0.tgz"} {
		archive, err := os.ReadFile(filepath.Join(cache, name))
		require.NoError(t, err)
		assert.Equal(t, packed(t, "/"+name), archive)
	}
	index, err := os.ReadFile(filepath.Join(cache, "index.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(index), "urls: [two-v2.0.0.tgz]")
}

func TestCharts_RefusesBadDownload(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*upstream, string)
		says   []string
	}{
		"no digest": {
			func(u *upstream, one string) { require.NoError(t, os.WriteFile(u.digests, []byte(one), 0o600)) },
			[]string{"has no digest of two-v2.0.0 (fix: run make pin-charts"},
		},
		"another digest": {
			func(u *upstream, one string) {
				require.NoError(t, os.WriteFile(u.digests, []byte(one+"two-v2.0.0: abab\n"), 0o600))
			},
			[]string{"the files of chart two-v2.0.0 of https://two.example.com have the digest h1:", "expects abab (fix: "},
		},
		"upstream out of reach": {
			func(u *upstream, _ string) { u.mirror = "http://127.0.0.1:1/charts" },
			[]string{"chart one-1.0.0 from http://127.0.0.1:1/charts: ", "connection refused", "(fix: run this where that address can be reached"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := fakeRepository(t)
			require.NoError(t, u.pin(t.Context(), fakeCharts))
			digests, err := os.ReadFile(u.digests)
			require.NoError(t, err)
			one, _, _ := strings.Cut(string(digests), "two-")
			c.breaks(u, one)
			cache := t.TempDir()
			err = u.download(t.Context(), cache, fakeCharts)
			for _, want := range c.says {
				require.ErrorContains(t, err, want)
			}
			assert.NoFileExists(t, filepath.Join(cache, "index.yaml"), "an incomplete cache is not used")
		})
	}
}
