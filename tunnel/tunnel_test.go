package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

func TestNew_ChecksConfig(t *testing.T) {
	source := func(context.Context) (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS13}, nil }
	for want, cfg := range map[string]Config{
		"host:port": {ServerAddress: "example.test", AgentID: "a1", TLS: source},
		"agent ID":  {ServerAddress: "example.test:7000", TLS: source},
		"TLS":       {ServerAddress: "example.test:7000", AgentID: "a1"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	tunnel, err := New(Config{ServerAddress: "[2001:db8::1]:7000", AgentID: "a1", TLS: source})
	require.NoError(t, err)
	cfg, _, err := tunnel.tlsConfig(t.Context())
	if err != nil || cfg.ServerName != "2001:db8::1" || !slices.Equal(cfg.NextProtos, []string{ALPN}) {
		t.Errorf("configuration %+v, %v", cfg, err)
	}
}

func TestStatus_Changed(t *testing.T) {
	tr := newTracker()
	for i, step := range []struct {
		phase Phase
		err   error
		want  Status
	}{
		{Connecting, nil, Status{Phase: Connecting}},
		{Waiting, errors.New("no route"), Status{Phase: Waiting, LastError: "no route"}},
		{Connecting, nil, Status{Phase: Connecting, LastError: "no route"}},
		{Connected, nil, Status{Phase: Connected}},
		{Waiting, errors.New("closed"), Status{Phase: Waiting, LastError: "closed"}},
		{Connected, nil, Status{Phase: Connected, Reconnects: 1}},
	} {
		changed := tr.changed()
		tr.set(step.phase, step.err)
		select {
		case <-changed:
		default:
			t.Errorf("step %d woke nobody", i)
		}
		got := tr.get()
		assert.False(t, got.Since.IsZero(), "step %d has no time", i)
		got.Since = time.Time{}
		assert.Equal(t, step.want, got, "step %d", i)
	}
}

func TestListener_ClosesUnaccepted(t *testing.T) {
	over := make(chan struct{})
	close(over)
	shut := newListener("a1")
	require.NoError(t, shut.Close())
	for name, offer := range map[string]func(net.Conn){
		"closed listener": func(c net.Conn) { shut.offer(c, nil) },
		"ended session":   func(c net.Conn) { newListener("a1").offer(c, over) },
	} {
		near, far := net.Pipe()
		offer(near)
		_, err := far.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF, name)
	}
	_, err := shut.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

// The server takes the connection and is silent.
func TestTunnel_StopWhileConnecting(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	cfg := tunneltest.NewCA(t).Agent("a1")
	tunnel, err := New(Config{
		ServerAddress: ln.Addr().String(), AgentID: "a1",
		TLS: func(context.Context) (*tls.Config, error) { return cfg, nil },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tunnel.Run(ctx) }()
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	cancel()
	err = await.Receive(t, ended, "the tunnel to stop")
	require.NoError(t, err)
	assert.Equal(t, Stopped, tunnel.Status().Phase, "%v, %+v", err, tunnel.Status())
}

// TestTunnel_PortBlocked: a port that drops packets is given up after the head start, though TCP
// has worked before.
func TestTunnel_PortBlocked(t *testing.T) {
	api, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = api.Close() }()
	cfg := tunneltest.NewCA(t).Agent("a1")
	source := func(context.Context) (*tls.Config, error) { return cfg, nil }
	tunnel, err := New(Config{
		ServerAddress: dropping(t), AgentID: "a1", TLS: source, Websocket: "https://" + api.Addr().String(), WebsocketTLS: source,
		Fallback: Fallback{HeadStart: 50 * time.Millisecond, Patience: time.Hour},
	})
	require.NoError(t, err)
	tunnel.transports.worked(TCP)
	await.Background(t, "the tunnel", tunnel.Run)
	conn, err := api.Accept()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// dropping returns an address that answers no packet: its queue of connections is full.
func dropping(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))
	await.Until(t, "the queue is full", func() bool {
		conn, err := (&net.Dialer{Timeout: 200 * time.Millisecond}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		return err != nil
	})
	return address
}

// A server that sends many agents away at once spreads their return.
func TestSpread_RandomMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempts, spread = 200, 8 * time.Minute
		ctx, stop := context.WithCancel(t.Context())
		var quarters [4]int
		last := time.Now()
		tunnel, err := New(Config{ServerAddress: "example.test:7000", AgentID: "a1", TLS: func(context.Context) (*tls.Config, error) {
			quarters[4*time.Since(last)/spread]++
			if last = time.Now(); quarters[0]+quarters[1]+quarters[2]+quarters[3] > attempts {
				stop()
			}
			return nil, &Error{Op: "connect to", Where: "a test", Spread: spread}
		}})
		require.NoError(t, err)
		require.NoError(t, tunnel.Run(ctx))
		for _, n := range quarters { // 50 are expected in each; 20 are five deviations off
			assert.True(t, n >= 20 && n <= 80, "by quarters of the spread: %v", quarters)
		}
	})
}

func TestChooseEndpoints_FirstTwo(t *testing.T) {
	at := func(addresses ...string) (all []Endpoint) {
		for _, a := range addresses {
			all = append(all, Endpoint{Address: a})
		}
		return all
	}
	for _, test := range []struct {
		told []Endpoint
		want string
		errs int
	}{
		{nil, "", 0},
		{at("a:1"), "a:1", 0},
		{at("a:1", "b:1", "c:1", "d:1", "e:1"), "a:1 b:1", 0},
		{at("a:1", "a:1", "A:1", "b:1"), "a:1 b:1", 0},
		{at("a:1", "a:2"), "a:1 a:2", 0},
		{at("[2001:db8::1]:7000", "10.0.0.1:7000"), "[2001:db8::1]:7000 10.0.0.1:7000", 0},
		{at("", "a", "a:", ":1", "a:0", "a:65536", "a:http", "a b:1", "a/b:1", "user@a:1", "a\nb:1", "a:1"), "a:1", 11},
		{[]Endpoint{{"a:1", "no name"}, {"a:1", "name"}}, "a:1", 1},
		{at(slices.Repeat([]string{"?"}, 1000)...), "", maxTold},
	} {
		chosen, err := choose(test.told)
		var got []string
		for _, e := range chosen {
			got = append(got, e.Address)
			assert.NotEmpty(t, e.ServerName, "%s has no server name", e.Address)
		}
		assert.Equal(t, test.want, strings.Join(got, " "), "%.10q: chose %q", test.told, got)
		lines := 0
		if err != nil {
			lines = len(strings.Split(err.Error(), "\n"))
		}
		assert.Equal(t, test.errs, lines, "%.10q: %d errors, want %d: %v", test.told, lines, test.errs, err)
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("cp.example.com:7000", "cp.example.com")
	f.Add("[fe80::1%eth0]:7000", "")
	f.Add("a:1\nHost: b", "\x00")
	f.Fuzz(func(t *testing.T, address, name string) {
		e := Endpoint{Address: address, ServerName: name}
		if e.Check() != nil {
			return
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil || host == "" || strings.ContainsAny(fmt.Sprint(host, name), " \t\r\n\x00/@") {
			t.Errorf("%q, %q is let through", address, name)
		}
		if n := e.normal(); n.Check() != nil || n != n.normal() {
			t.Errorf("%q, %q: its normal form is %+v", address, name, n)
		}
	})
}
