package egress_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

// listing returns a guard that fetches from the loopback, and from these hosts alone.
func listing(hosts ...string) egress.Guard {
	list := egress.Hosts{Patterns: append([]string{}, hosts...), Source: "policy.yaml"}
	return egress.Guard{Allowed: loopback, Hosts: func() egress.Hosts { return list }}
}

func TestHosts_AllowListed(t *testing.T) {
	g := listing("git.example.com", "*.charts.example.com", "10.0.0.7")
	for host, fine := range map[string]bool{
		"git.example.com": true, "GIT.Example.COM": true, "git.example.com.": true, "a.charts.example.com": true,
		"a.b.charts.example.com": true, "10.0.0.7": true,
		"charts.example.com": false, "git.example.com.evil.example": false, "evilgit.example.com": false, "example.com": false,
		"git.example.com..": false, "10.0.0.8": false, "::ffff:10.0.0.7": false, "::1": false, "": false, "*": false,
		"evil.example\u3002charts.example.com": true, // net/http looks up evil.example.charts.example.com
		"evil.example/.charts.example.com":     false,
		"ɡit.example.com":                      false,
	} {
		err := g.CheckHost(host)
		assert.Equal(t, fine, err == nil, "%q: %v", host, err)
		if refused := (&egress.RefusedError{}); !fine && assert.ErrorAs(t, err, &refused) {
			assert.True(t, refused.ByPolicy())
			assert.Contains(t, refused.Fix(), "fetchHosts in policy.yaml")
		}
	}
	assert.ErrorContains(t, g.CheckHost("evil.example"), `fetchHosts in the customer's policy does not list the host "evil.example"`)
	assert.Error(t, listing().CheckHost("git.example.com"), "an empty list allows no host")
	assert.NoError(t, listing("*").CheckHost("git.example.com"))
	assert.Error(t, egress.Guard{}.CheckHost("git.example.com"), "without a policy, no host is allowed")
	assert.NoError(t, egress.Guard{Hosts: egress.EveryHost}.CheckHost("git.example.com"), "a policy without a list allows every host")
}

// TestHosts_RefuseRedirects has a host that is listed redirect to another, at
// the same address.
func TestHosts_RefuseRedirects(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host)
		if strings.HasPrefix(r.Host, "127.0.0.1:") {
			http.Redirect(w, r, "http://"+strings.Replace(r.Host, "127.0.0.1", "localhost", 1), http.StatusFound)
		}
	}))
	defer server.Close()
	refused := &egress.RefusedError{}
	plain := &http.Transport{DisableKeepAlives: true}
	require.ErrorAs(t, get(t, listing("127.0.0.1").Transport(plain), server.URL), &refused)
	assert.Equal(t, "localhost", refused.Host)
	assert.Len(t, asked, 1)
	require.NoError(t, get(t, listing("127.0.0.1", "localhost").Transport(plain), server.URL))
	assert.Len(t, asked, 3)

	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	via := listing("charts.example.com").Transport(&http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true})
	require.NoError(t, get(t, via, "http://charts.example.com/"))
	require.ErrorAs(t, get(t, via, "http://evil.example/"), &refused)
	assert.Equal(t, "charts.example.com", asked[len(asked)-1])
}

// TestHosts_FollowChanges for a connection that is kept open, too.
func TestHosts_FollowChanges(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	list := egress.Hosts{Patterns: []string{"127.0.0.1"}}
	g := egress.Guard{Allowed: loopback, Hosts: func() egress.Hosts { return list }}
	kept := &http.Transport{}
	via := g.Transport(kept)
	defer via.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	require.NoError(t, get(t, via, server.URL))
	list = egress.Hosts{Patterns: []string{}}
	refused := &egress.RefusedError{}
	require.ErrorAs(t, get(t, via, server.URL), &refused)
	_, err := g.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.ErrorAs(t, err, &refused)
	assert.True(t, refused.ByPolicy())

	list = egress.Hosts{}
	require.NoError(t, get(t, via, server.URL))
	_, err = egress.Guard{Hosts: g.Hosts}.DialContext(t.Context(), "tcp", net.JoinHostPort("localhost", "1"))
	require.ErrorAs(t, err, &refused)
	assert.False(t, refused.ByPolicy(), "the address is judged as well")
}
