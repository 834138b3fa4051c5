package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
)

const balancer, elsewhere = "127.0.0.2", "127.0.0.3"

// balanced has the gateway listen behind a load balancer, with limits like those of the control
// plane.
func (w *world) balanced(limits limit.Config) {
	secure, plain := listen(w.t), listen(w.t)
	w.secure, w.plain = secure.Addr(), plain.Addr()
	front := func(ln net.Listener) net.Listener {
		return limit.Listen(gateway.ListenProxy(ln, []netip.Prefix{netip.MustParsePrefix(balancer + "/32")}, zerolog.Nop()), limits)
	}
	w.run(func(ctx context.Context) error { return w.gateway.Serve(ctx, front(secure), front(plain)) })
}

// dialFrom connects from an address, and sends some bytes first.
func dialFrom(ctx context.Context, from string, to net.Addr, first []byte) (net.Conn, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	_, err = conn.Write(first)
	return conn, err
}

// visitor returns a client whose connections come from an address and begin with some bytes.
func (w *world) visitor(from string, first []byte) *http.Client {
	return w.from(w.client(false), from, first)
}

// from has a client's connections come from an address and begin with some bytes.
func (w *world) from(c *http.Client, address string, first []byte) *http.Client {
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialFrom(ctx, address, w.secure, first)
	}
	return c
}

func header(t *testing.T, h proxyproto.Header, tlvs ...proxyproto.TLV) []byte {
	t.Helper()
	if len(tlvs) > 0 {
		require.NoError(t, h.SetTLVs(tlvs))
	}
	text, err := h.Format()
	require.NoError(t, err)
	return text
}

func visitorAt(t *testing.T, address string) []byte {
	t.Helper()
	return header(t, *proxyproto.HeaderProxyFromAddrs(2,
		net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 4000)), &net.TCPAddr{IP: net.ParseIP("198.51.100.1"), Port: 443}))
}

func TestProxyProtocol_ClientAddress(t *testing.T) {
	log := &logbook.Book{}
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For")+" "+r.Header.Get("Forwarded"))
	}), func(c *gateway.Config) { c.Log, c.AccessLog = zerolog.New(log), true })
	w.balanced(limit.Config{Log: zerolog.Nop()})
	six := &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 4000}
	sixth := &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 443}
	for name, of := range map[string]struct {
		from  string
		first []byte
		seen  string
	}{
		"version 1":            {balancer, []byte("PROXY TCP4 203.0.113.7 198.51.100.1 4000 443\r\n"), "203.0.113.7"},
		"version 1, IPv6":      {balancer, []byte("PROXY TCP6 2001:db8::7 2001:db8::1 4000 443\r\n"), "2001:db8::7"},
		"version 2":            {balancer, visitorAt(t, "203.0.113.8"), "203.0.113.8"},
		"version 2, IPv6":      {balancer, header(t, *proxyproto.HeaderProxyFromAddrs(2, six, sixth), proxyproto.TLV{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte(host)}), "2001:db8::7"},
		"its own, version 1":   {balancer, []byte("PROXY UNKNOWN\r\n"), balancer},
		"its own, version 2":   {balancer, header(t, proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}), balancer},
		"not through balancer": {elsewhere, nil, elsewhere},
	} {
		resp, body := do(t, w.visitor(of.from, of.first), request(t, http.MethodGet, "https://"+host+"/", nil, "X-Forwarded-For", "192.0.2.1"))
		assert.Equal(t, http.StatusOK, resp.StatusCode, name)
		address, forwarded, _ := strings.Cut(body, " ")
		assert.Equal(t, of.seen, address, name)
		assert.Contains(t, forwarded, of.seen, name)
		await.Until(t, name, func() bool { return log.Count(`"client":"`+of.seen+`"`, resp.Header.Get("X-Request-Id")) == 1 })
	}
}

// TestProxyProtocol_RefusesInvalid covers the load balancer without a header, and any header from
// elsewhere.
func TestProxyProtocol_RefusesInvalid(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	w.balanced(limit.Config{Log: zerolog.Nop()})
	unix := proxyproto.Header{
		Version: 2, Command: proxyproto.PROXY, TransportProtocol: proxyproto.UnixStream,
		SourceAddr: &net.UnixAddr{Net: "unix", Name: "a"}, DestinationAddr: &net.UnixAddr{Net: "unix", Name: "b"},
	}
	for name, of := range map[string]struct {
		from  string
		first []byte
	}{
		"none from the balancer": {balancer, nil},
		"not of TCP":             {balancer, header(t, unix)},
		"no address":             {balancer, []byte("PROXY TCP4 203.0.113 198.51.100.1 4000 443\r\n")},
		"endless":                {balancer, []byte("PROXY TCP4 " + strings.Repeat("1", 200))},
		"version 1, elsewhere":   {elsewhere, []byte("PROXY TCP4 203.0.113.7 198.51.100.1 4000 443\r\n")},
		"version 2, elsewhere":   {elsewhere, visitorAt(t, "203.0.113.8")},
	} {
		_, err := w.visitor(of.from, of.first).Do(request(t, http.MethodGet, "https://"+host+"/", nil))
		require.Error(t, err, name)
		conn, err := dialFrom(t.Context(), of.from, w.plain, append(of.first, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"...))
		require.NoError(t, err, name)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		answer, _ := io.ReadAll(conn) // or a reset
		assert.NotContains(t, string(answer), "HTTP/1.1 308", name)
		require.NoError(t, conn.Close())
	}
	resp, _ := do(t, w.visitor(elsewhere, nil), request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestProxyProtocol_LimitPerClient includes a connection without a header, which delays no other.
func TestProxyProtocol_LimitPerClient(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- struct{}{}
			<-end
		}
	}), func(c *gateway.Config) { c.Limits.Requests.PerAddress = 1 })
	w.balanced(limit.Config{PerPeer: 2, Log: zerolog.Nop()})
	silent, err := dialFrom(t.Context(), balancer, w.secure, nil)
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()

	one, other := visitorAt(t, "203.0.113.7"), visitorAt(t, "203.0.113.8")
	first := begin(t, w.visitor(balancer, one), "/wait")
	await.Receive(t, began, "the first request")
	resp, _ := do(t, w.visitor(balancer, one), request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	_, err = w.visitor(balancer, one).Do(request(t, http.MethodGet, "https://"+host+"/", nil))
	require.Error(t, err, "a third connection")
	resp, _ = do(t, w.visitor(balancer, other), request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	close(end)
	require.NoError(t, await.Receive(t, first, "the first answer"))
}
