package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestGuard_RefusesLocalAddresses(t *testing.T) {
	for address, fine := range map[string]bool{
		"93.184.216.34": true, "10.0.0.7": true, "192.168.1.9": true, "fd12::1": true, "2606:2800::1": true,
		"127.0.0.1": false, "127.8.9.1": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false,
		"169.254.169.254": false, "169.254.0.1": false, "fe80::1%eth0": false, "fd00:ec2::254": false,
		"168.63.129.16": false, "100.100.100.200": false, "192.0.0.192": false,
		"fd00:ec2::23": false, "fd20:ce::254": false, "fd00:c1::a9fe:a9fe": false, "fd00:100::100:200": false, "fd00:42::42": false, "fd00:a9fe:a9fe::1": false,
		"0.0.0.0": false, "::": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
		"64:ff9b::a9fe:a9fe": false, "64:ff9b::7f00:1": false, "64:ff9b::5db8:d822": true,
	} {
		err := egress.Guard{}.Check(netip.MustParseAddr(address))
		assert.Equal(t, fine, err == nil, "%s: %v", address, err)
		refused := &egress.RefusedError{}
		assert.Equal(t, !fine, errors.As(err, &refused), address)
	}
	assert.NoError(t, egress.Guard{Allowed: loopback}.Check(netip.MustParseAddr("127.0.0.1")))
	assert.Error(t, egress.Guard{Allowed: loopback}.Check(netip.MustParseAddr("169.254.169.254")))
}

func TestPublic(t *testing.T) {
	allowed := []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}
	for address, public := range map[string]bool{
		"93.184.216.34": true, "2606:2800::1": true, "64:ff9b::5db8:d822": true, "::ffff:93.184.216.34": true, "10.20.3.4": true, "::ffff:10.20.3.4": true,
		"10.0.0.7": false, "172.16.0.1": false, "192.168.1.9": false, "127.0.0.1": false, "::1": false, "100.64.0.1": false, "169.254.1.1": false,
		"192.0.2.1": false, "198.51.100.1": false, "203.0.113.1": false, "2001:db8::1": false, "fd12::1": false, "fe80::1%eth0": false, "0.0.0.0": false,
		"198.18.0.1": false, "240.0.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "::ffff:127.0.0.1": false, "64:ff9b::a00:1": false,
	} {
		assert.Equal(t, public, egress.IsPublic(netip.MustParseAddr(address), allowed), address)
	}
}

func get(t *testing.T, via http.RoundTripper, address string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: via}).Do(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return err
}

// TestGuard_RefusesRedirects has a server that is allowed refer to others, and a name that
// stands for this machine.
func TestGuard_RefusesRedirects(t *testing.T) {
	var asked []string
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Host) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	require.NoError(t, err)
	outside := httptest.NewUnstartedServer(http.RedirectHandler("http://127.0.0.1:"+port+"/", http.StatusFound))
	outside.Listener.Close()
	outside.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.7.7.7:0")
	require.NoError(t, err)
	outside.Start()
	defer outside.Close()

	via := egress.Guard{Hosts: egress.EveryHost, Allowed: []netip.Prefix{netip.MustParsePrefix("127.7.7.7/32")}}.Transport(&http.Transport{DisableKeepAlives: true})
	refused := &egress.RefusedError{}
	for _, address := range []string{
		outside.URL, "http://127.0.0.1:" + port, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port,
	} {
		assert.ErrorAs(t, get(t, via, address), &refused, address)
	}
	assert.Empty(t, asked)
	assert.NoError(t, get(t, egress.Guard{Hosts: egress.EveryHost, Allowed: loopback}.Transport(&http.Transport{DisableKeepAlives: true}), outside.URL))
	assert.Len(t, asked, 1)
}

// TestGuard_AllowsProxy has the environment's proxy on this machine, which leads to other hosts
// and not to addresses that are refused.
func TestGuard_AllowsProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Host) }))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	via := egress.Guard{Hosts: egress.EveryHost}.Transport(&http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true})
	assert.NoError(t, get(t, via, "http://charts.example.com/"))
	refused := &egress.RefusedError{}
	assert.ErrorAs(t, get(t, via, "http://169.254.169.254/latest/meta-data"), &refused)
	assert.ErrorAs(t, get(t, via, proxy.URL), &refused)
	assert.Equal(t, []string{"charts.example.com"}, asked)
}

func TestGuard_ChecksDialledAddress(t *testing.T) {
	d := &net.Dialer{Control: egress.Guard{}.Control}
	_, err := d.DialContext(context.Background(), "tcp", "localhost:1")
	refused := &egress.RefusedError{}
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, refused.Fix(), egress.Setting)
}
