package gateway_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// maxPayload is the largest datagram of IPv4.
const maxPayload = 65507

// flowWorld is a portWorld whose port is of UDP, and leads to a server that returns what it gets.
type flowWorld struct {
	*portWorld
	app *net.UDPConn
	got atomic.Int64 // datagrams of the App
}

func newFlowWorld(t *testing.T, change ...func(*portWorld)) *flowWorld {
	t.Helper()
	w := &flowWorld{}
	w.portWorld = newPortWorld(t, repeat, change...)
	w.app = packetServer(t, "127.0.0.1:0", &w.got)
	w.lead(nil)
	w.claimUDP("shop", "db")
	return w
}

// packetServer returns what it gets, and counts it.
func packetServer(t *testing.T, address string, got *atomic.Int64) *net.UDPConn {
	t.Helper()
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
	require.NoError(t, err)
	conn := packets.(*net.UDPConn)
	_ = conn.SetReadBuffer(4 << 20)
	await.Background(t, "a server", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		for buffer := make([]byte, gatewaywire.MaxPacket); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return nil // the test has ended
			}
			got.Add(1)
			_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	})
	return conn
}

// lead has the agent lead the port to the App.
func (w *flowWorld) lead(change func(*agentside.Route)) {
	r := agentside.Route{Host: "db.apps.example.com", Protocol: gatewaywire.UDP, Port: 5432, Addresses: []string{w.app.LocalAddr().String()}}
	if change != nil {
		change(&r)
	}
	w.handler.Set([]agentside.Route{r})
}

// claimUDP gives the port of UDP to an App.
func (w *flowWorld) claimUDP(namespace, app string) {
	w.t.Helper()
	w.put(store.PortClaim{Namespace: namespace, App: app, Protocol: gatewaywire.UDP, Port: 5432, Host: app + ".apps.example.com", Wanted: w.port, ClaimedAt: time.Now()})
}

// sender returns a visitor with a port of its own.
func (w *flowWorld) sender(host string) *net.UDPConn {
	w.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.t.Context(), "udp", net.JoinHostPort(host, strconv.Itoa(w.port)))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UDPConn)
}

// echoed sends a datagram until its answer comes: the first may come before the port is open.
func echoed(t *testing.T, conn *net.UDPConn, text string) {
	t.Helper()
	await.Until(t, "an answer", func() bool { return answered(conn, text, time.Second) })
}

// answered reports whether the answer to a datagram comes within a time.
func answered(conn *net.UDPConn, text string, within time.Duration) bool {
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte(text)); err != nil {
		return false
	}
	buffer := make([]byte, gatewaywire.MaxPacket)
	n, err := conn.Read(buffer)
	return err == nil && string(buffer[:n]) == text
}

// metric returns the sum of a metric's values with a label's value; an empty one is any.
func (w *flowWorld) metric(name, value string) (sum int) {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() != "test_gateway_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if value == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value }) {
				sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	return sum
}

// dropped returns how many datagrams the gateway has dropped for a reason.
func (w *flowWorld) dropped(reason string) int {
	return w.metric("port_datagrams_dropped_total", reason)
}

// flows returns how many flows there are.
func (w *flowWorld) flows() int { return w.metric("port_flows", "") }

func TestFlows_Datagrams(t *testing.T) {
	w := newFlowWorld(t)
	conn := w.sender(home)
	for _, text := range []string{"one", "", strings.Repeat("x", maxPayload)} {
		echoed(t, conn, text)
	}
	other := w.sender(home)
	echoed(t, other, "from another port")
	assert.Equal(t, 2, w.metric("port_connections_total", "ok"), "a flow is one stream")
	assert.Equal(t, 2, w.flows())
}

// TestFlows_NothingIsLost: 5 000 datagrams a second, all of them there and back. The first come
// while the flow opens. On a machine that is too busy for that, they come as it gets to them.
func TestFlows_NothingIsLost(t *testing.T) {
	w := newFlowWorld(t)
	echoed(t, w.sender(home), "the port is open")
	conn := w.sender(home)
	const count, each, unanswered = 5000, 10, 128 // what Linux' own buffers keep
	_ = conn.SetReadBuffer(4 << 20)
	places := make(chan struct{}, unanswered)
	await.Background(t, "the sender", func(ctx context.Context) error {
		pace := time.NewTicker(each * time.Second / count)
		defer pace.Stop()
		packet := make([]byte, 200)
		for n := range uint32(count) {
			if n%each == 0 {
				<-pace.C
			}
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			binary.BigEndian.PutUint32(packet, n)
			if _, err := conn.Write(packet); err != nil {
				return err
			}
		}
		return nil
	})
	buffer := make([]byte, 2048)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for n := range uint32(count) {
		size, err := conn.Read(buffer)
		require.NoError(t, err, "%d of %d came back; dropped: %d", n, count, w.dropped("queue"))
		require.Equal(t, 200, size)
		require.Equal(t, n, binary.BigEndian.Uint32(buffer), "they stay in order")
		<-places
	}
	assert.Equal(t, 2, w.metric("port_connections_total", "ok"))
}

func TestFlows_AllowFrom(t *testing.T) {
	w := newFlowWorld(t)
	w.lead(func(r *agentside.Route) { r.Visitors.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	conn := w.sender(home)
	await.Until(t, "the address is remembered as refused", func() bool {
		_, err := conn.Write([]byte("x"))
		return err == nil && w.dropped("refused") > 0
	})
	assert.Zero(t, w.got.Load())
	w.lead(func(r *agentside.Route) { r.Visitors.AllowFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	echoed(t, conn, "again")
}

// TestFlows_Idle: a flow without datagrams ends, and the next one begins another.
func TestFlows_Idle(t *testing.T) {
	w := newFlowWorld(t)
	w.lead(func(r *agentside.Route) { r.Idle = 200 * time.Millisecond })
	conn := w.sender(home)
	for range 2 {
		echoed(t, conn, "one")
		await.Until(t, "the flow has ended", func() bool { return w.flows() == 0 })
	}
}

// TestFlows_Bounded: addresses that send one datagram each, as forged ones do, take no more than
// their share. What is there goes on.
func TestFlows_Bounded(t *testing.T) {
	w := newFlowWorld(t, func(p *portWorld) { p.limits.Flows = gateway.Most{All: 64, PerAddress: 4, PerHost: 16, PerAgent: 32} })
	conn := w.sender(home)
	echoed(t, conn, "before")
	for n := range 200 {
		forged, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(n))}}).DialContext(t.Context(), "udp", w.address())
		require.NoError(t, err)
		for range 2 {
			_, err = forged.Write([]byte("x"))
			require.NoError(t, err)
		}
		require.NoError(t, forged.Close())
		if n%20 == 0 {
			echoed(t, conn, "meanwhile")
		}
	}
	echoed(t, conn, "after")
	assert.LessOrEqual(t, w.flows(), 16)
	assert.NotZero(t, w.metric("port_connections_total", "busy"))
}

func TestFlows_PerAddress(t *testing.T) {
	w := newFlowWorld(t, func(p *portWorld) { p.limits.Flows = gateway.Most{PerAddress: 2} })
	for range 2 {
		echoed(t, w.sender(home), "x")
	}
	conn := w.sender(home)
	await.Until(t, "the third is refused", func() bool {
		_, err := conn.Write([]byte("x"))
		return err == nil && w.metric("port_connections_total", "too-many") > 0
	})
	assert.Equal(t, 2, w.flows())
}

// TestFlows_NoPod: what nothing listens to is known, and no stream is opened for each datagram.
func TestFlows_NoPod(t *testing.T) {
	w := newFlowWorld(t)
	address := w.app.LocalAddr().String()
	require.NoError(t, w.app.Close())
	conn := w.sender(home)
	await.Until(t, "the address is remembered", func() bool {
		_, err := conn.Write([]byte("x"))
		return err == nil && w.dropped("refused") > 0
	})
	w.app = packetServer(t, address, &w.got)
	echoed(t, conn, "it is back")
}

// TestFlows_BesideTCP: one number serves an App by TCP and another by UDP.
func TestFlows_BesideTCP(t *testing.T) {
	w := newFlowWorld(t)
	of := func(app, protocol string) store.PortClaim {
		return store.PortClaim{Namespace: "shop", App: app, Protocol: protocol, Port: 5432, Host: app + ".apps.example.com", Wanted: w.port, ClaimedAt: time.Now()}
	}
	w.put(of("db", gatewaywire.UDP), of("web", gatewaywire.TCP))
	w.handler.Set([]agentside.Route{
		{Host: "db.apps.example.com", Protocol: gatewaywire.UDP, Port: 5432, Addresses: []string{w.app.LocalAddr().String()}},
		{Host: "web.apps.example.com", Protocol: gatewaywire.TCP, Port: 5432, Addresses: []string{tcpServer(t, repeat)}},
	})
	echoed(t, w.sender(home), "by UDP")
	conn := w.visit()
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
}

// TestFlows_FollowTheirApps: an App that gives its port up has no flows there.
func TestFlows_FollowTheirApps(t *testing.T) {
	w := newFlowWorld(t)
	conn := w.sender(home)
	echoed(t, conn, "one")
	w.put()
	await.Until(t, "the port is closed", func() bool {
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write([]byte("x"))
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	await.Until(t, "no flow is left", func() bool { return w.flows() == 0 })
	w.claimUDP("shop", "db")
	echoed(t, conn, "two")
}

// TestFlows_RestartOfTheAgent: the next datagram after the tunnel's end begins another flow.
func TestFlows_RestartOfTheAgent(t *testing.T) {
	w := newFlowWorld(t)
	conn := w.sender(home)
	echoed(t, conn, "one")
	w.cut()
	echoed(t, conn, "two")
}

// TestFlows_AnswerFromWhereItCame: where a machine has several addresses, the answer comes from the
// one that was asked.
func TestFlows_AnswerFromWhereItCame(t *testing.T) {
	for _, listen := range []string{"0.0.0.0", "::"} {
		t.Run(listen, func(t *testing.T) {
			w := newFlowWorld(t, func(p *portWorld) { p.listen = listen })
			echoed(t, w.sender("127.0.0.7"), "one") // a connected socket takes no other answer
			echoed(t, w.sender("127.0.0.8"), "two")
			if listen == "::" {
				echoed(t, w.sender("::1"), "three")
			}
		})
	}
}
