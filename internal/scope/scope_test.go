package scope_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/scope"
)

func TestHolds(t *testing.T) {
	for text, c := range map[string]struct{ within, outside []string }{
		"https://charts.example.com/shop": {
			[]string{"https://charts.example.com/shop", "https://CHARTS.example.com:443/shop/", "https://charts.example.com/shop/a/web-1.tgz?x=y"},
			[]string{
				"http://charts.example.com/shop", "https://charts.example.com:8443/shop", "https://other.example.com/shop",
				"https://sub.charts.example.com/shop", "https://charts.example.com/shopping", "https://charts.example.com/",
				"https://charts.example.com/shop/../payroll", "https://charts.example.com/shop/%2e%2e/payroll",
				"https://charts.example.com/shop/..%2fpayroll", "https://charts.example.com/shop/..;a/payroll",
				`https://charts.example.com/shop/..%5cpayroll`, "https://charts.example.com/shop//payroll", "oci://charts.example.com/shop",
			},
		},
		"oci://registry.example.com:5000": {
			[]string{"oci://registry.example.com:5000/any/chart"}, []string{"oci://registry.example.com/any/chart", "https://registry.example.com:5000/any"},
		},
	} {
		s, err := scope.Parse(text)
		require.NoError(t, err)
		for _, at := range c.within {
			assert.True(t, s.Holds(parsed(t, at)), "%s: %s", text, at)
		}
		for _, at := range c.outside {
			assert.False(t, s.Holds(parsed(t, at)), "%s: %s", text, at)
		}
	}
	assert.False(t, scope.Scope{}.Holds(parsed(t, "https://charts.example.com/")), "no scope holds nothing")
}

func TestParse_RefusesInvalid(t *testing.T) {
	for _, text := range []string{
		"", "charts.example.com", "ftp://charts.example.com", "https://", "https://me@charts.example.com", "https://charts.example.com?a",
		"https://charts.example.com/a/../b", "https://charts.example.com/a%2fb", "https://charts.example.com/#a", "https:///a",
	} {
		_, err := scope.Parse(text)
		require.Error(t, err, text)
	}
}

func FuzzHolds(f *testing.F) {
	f.Add("https://a/b", "https://a/b/c")
	f.Add("https://a", "https://a/../b")
	f.Fuzz(func(t *testing.T, text, at string) {
		s, err := scope.Parse(text)
		u, bad := url.Parse(at)
		if err != nil || bad != nil || !s.Holds(u) {
			return
		}
		own := parsed(t, text)
		require.Equal(t, own.Scheme, u.Scheme)
		require.True(t, scope.Below(u.JoinPath().Path, own.Path), "%s is not below %s", u, own)
	})
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}
