package gateway_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
)

// home is the address of this machine.
const home = "127.0.0.1"

// portWorld is a world with a public port that leads to a server of TCP.
type portWorld struct {
	*world
	port   int
	listen string // the address of ports of UDP
	limits gateway.Limits
}

func newPortWorld(t *testing.T, serve func(net.Conn), change ...func(*portWorld)) *portWorld {
	t.Helper()
	_, text, err := net.SplitHostPort(freeport.Address(t))
	require.NoError(t, err)
	p := &portWorld{listen: home}
	p.port, err = strconv.Atoi(text)
	require.NoError(t, err)
	for _, f := range change {
		f(p)
	}
	p.world = newWorld(t, nil, func(c *gateway.Config) {
		c.Table.SetOpen(ports.Open{TCP: ports.Set{p.port}, UDP: ports.Set{p.port}})
		c.Listen = func(ctx context.Context, port int) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}
		c.ListenUDP = func(ctx context.Context, port int) (net.PacketConn, error) {
			return (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(p.listen, strconv.Itoa(port)))
		}
		c.Limits = p.limits
		c.Patience.Leave = 50 * time.Millisecond
	})
	p.behind(tcpServer(t, serve), nil)
	p.claim("shop", "db")
	return p
}

// tcpServer serves connections, and returns its address.
func tcpServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln := listen(t)
	await.Background(t, "a server", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return nil // the test has ended
			}
			go func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			}()
		}
	})
	return ln.Addr().String()
}

// behind has the agent lead the App's port to an address.
func (p *portWorld) behind(address string, change func(*agentside.Route)) {
	r := agentside.Route{Host: "db.apps.example.com", Protocol: gatewaywire.TCP, Port: 5432, Addresses: []string{address}}
	if change != nil {
		change(&r)
	}
	p.handler.Set([]agentside.Route{r})
}

// claim gives the port to an App.
func (p *portWorld) claim(namespace, app string) {
	p.t.Helper()
	p.put(store.PortClaim{Namespace: namespace, App: app, Protocol: gatewaywire.TCP, Port: 5432, Host: app + ".apps.example.com", Wanted: p.port, ClaimedAt: time.Now()})
}

func (p *portWorld) put(claims ...store.PortClaim) {
	p.t.Helper()
	require.NoError(p.t, p.store.Update(p.t.Context(), func(tx *store.Tx) error {
		return tx.PutPortClaims(p.t.Context(), "a1", claims)
	}))
	require.NoError(p.t, p.table.Refresh(p.t.Context()))
	p.gateway.Follow()
}

func (p *portWorld) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// visit connects to the port once the gateway listens there.
func (p *portWorld) visit() *net.TCPConn {
	p.t.Helper()
	var conn net.Conn
	await.Until(p.t, "the gateway listens at the port", func() bool {
		var err error
		conn, err = (&net.Dialer{Timeout: attempt}).DialContext(p.t.Context(), "tcp", p.address())
		return err == nil
	})
	p.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(p.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn.(*net.TCPConn)
}

func (p *portWorld) closed() {
	p.t.Helper()
	await.Until(p.t, "the port is closed", func() bool {
		conn, err := (&net.Dialer{Timeout: attempt}).DialContext(p.t.Context(), "tcp", p.address())
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// repeat returns what it gets, and ends once the other end has.
func repeat(conn net.Conn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.(*net.TCPConn).CloseWrite()
}

func TestPorts_HalfClose(t *testing.T) {
	p := newPortWorld(t, func(conn net.Conn) { // it answers once it has got all
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(append([]byte("got "), all...))
	})
	conn := p.visit()
	_, err := conn.Write([]byte("all of it"))
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "got all of it", string(answer))
}

func TestPorts_ServerSpeaksFirst(t *testing.T) {
	p := newPortWorld(t, func(conn net.Conn) { _, _ = conn.Write([]byte("220 ready\r\n")); repeat(conn) })
	line, err := bufio.NewReader(p.visit()).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "220 ready\r\n", line)
}

func TestPorts_Bulk(t *testing.T) {
	p := newPortWorld(t, repeat)
	conn, sum := p.visit(), sha256.New()
	const size = 32 << 20
	sent := make(chan []byte, 1)
	await.Background(t, "the sender", func(context.Context) error {
		of := sha256.New()
		_, err := io.CopyN(io.MultiWriter(conn, of), rand.Reader, size)
		sent <- of.Sum(nil)
		return errors.Join(err, conn.CloseWrite())
	})
	n, err := io.Copy(sum, conn)
	require.NoError(t, err)
	assert.EqualValues(t, size, n)
	assert.Equal(t, <-sent, sum.Sum(nil))
}

func TestPorts_AllowFrom(t *testing.T) {
	p := newPortWorld(t, repeat)
	p.behind(tcpServer(t, repeat), func(r *agentside.Route) { r.Visitors.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	_, err := p.visit().Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)

	p.behind(tcpServer(t, repeat), func(r *agentside.Route) { r.Visitors.AllowFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	conn := p.visit()
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
}

func TestPorts_ConnectionsPerSecond(t *testing.T) {
	p := newPortWorld(t, repeat)
	p.behind(tcpServer(t, repeat), func(r *agentside.Route) { r.Visitors.PerSecond = 1 })
	refused := 0
	for range 8 {
		conn := p.visit()
		_, _ = conn.Write([]byte("x"))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			refused++
		}
	}
	assert.NotZero(t, refused, "five at once are let in, and one a second")
}

func TestPorts_ProxyProtocol(t *testing.T) {
	headers := make(chan *proxyproto.Header, 1)
	p := newPortWorld(t, repeat)
	p.behind(tcpServer(t, func(conn net.Conn) {
		header, err := proxyproto.Read(bufio.NewReader(conn))
		assert.NoError(t, err)
		headers <- header
	}), func(r *agentside.Route) { r.Proxied = true })
	conn := p.visit()
	header := <-headers
	require.NotNil(t, header)
	assert.EqualValues(t, 2, header.Version)
	assert.Equal(t, conn.LocalAddr().String(), header.SourceAddr.String())
	assert.Equal(t, p.address(), header.DestinationAddr.String())
}

func TestPorts_Idle(t *testing.T) {
	p := newPortWorld(t, repeat)
	p.behind(tcpServer(t, repeat), func(r *agentside.Route) { r.Idle = 300 * time.Millisecond })
	began := time.Now()
	_, err := p.visit().Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}

// What an App has no more is closed, with its connections. Nothing listens that need not.
func TestPorts_FollowTheirApps(t *testing.T) {
	p := newPortWorld(t, repeat)
	conn := p.visit()
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)

	p.put()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	p.closed()

	p.claim("shop", "db")
	p.visit()
}

// A port that goes to another App takes no connection along.
func TestPorts_AnotherOwner(t *testing.T) {
	p := newPortWorld(t, repeat)
	conn := p.visit()
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	p.claim("shop", "cache")
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestPorts_NoWay(t *testing.T) {
	p := newPortWorld(t, repeat)
	reset := func() {
		t.Helper()
		_, err := p.visit().Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	p.handler.Set(nil) // no route of the agent has the port
	reset()
	p.behind("127.0.0.1:1", nil) // no pod listens
	reset()
	p.disconnect()
	reset()
}

func TestPorts_RestartOfTheAgent(t *testing.T) {
	p := newPortWorld(t, repeat)
	conn := p.visit()
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	p.cut()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	conn = p.visit()
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
}

func TestPorts_InUseByTheMachine(t *testing.T) {
	p := newPortWorld(t, repeat)
	p.put()
	p.closed()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.address())
	require.NoError(t, err)
	p.claim("shop", "db")
	await.Until(t, "the failure is known", func() bool { return p.gateway.PortFailure(gatewaywire.TCP, p.port) != nil })
	require.NoError(t, taken.Close())
	p.gateway.Follow()
	p.visit()
	await.Until(t, "it is forgotten", func() bool { return p.gateway.PortFailure(gatewaywire.TCP, p.port) == nil })
}

// A visitor of HTTP cannot open a connection as the gateway does.
func TestPorts_NoConnectOverHTTP(t *testing.T) {
	p := newPortWorld(t, repeat)
	conn := p.connect()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	asks := gatewaywire.Connection{
		ID: "x", Protocol: gatewaywire.TCP, Host: "db.apps.example.com", Port: 5432, Visitor: netip.MustParseAddrPort("192.0.2.1:1"), At: netip.MustParseAddrPort("192.0.2.2:5432"),
	}
	require.NoError(t, asks.Request().Write(conn))
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, " 405 ")
}
