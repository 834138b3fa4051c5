package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// maxQueued bounds the datagrams that wait at one port, in bytes, and maxWaiting and maxQueue
	// those of one flow, in number and in bytes. They wait while the agent connects to the App.
	maxQueued, maxWaiting, maxQueue = 32 << 20, 4096, 2 << 20
	// packetCost is what a datagram that waits takes beside its payload.
	packetCost = 64
	// maxOpening is how many flows of one port may be about to open.
	maxOpening = 128
	// refusedFor is how long datagrams of an address are dropped of which a flow was refused, or
	// whose App has gone away at once.
	refusedFor = 2 * time.Second
	// packetPause is how long reading rests when it fails.
	packetPause = 100 * time.Millisecond
)

// Why a datagram is dropped.
const (
	droppedQueue   = "queue"   // too many wait
	droppedOpening = "opening" // too many flows are about to open
	droppedRefused = "refused" // the address was refused a moment ago
)

// flowKey identifies a flow: a visitor's address and port, and the address that it came to.
type flowKey struct {
	from netip.AddrPort
	at   netip.Addr
}

// flows are the flows of datagrams at a public port.
type flows struct {
	o       *openPorts
	port    Port
	socket  *socket
	refused *limit.Failures[netip.Prefix]

	mu      sync.Mutex
	open    map[flowKey]*flow
	opening int
	queued  int // bytes
}

func newFlows(o *openPorts, p Port, conn net.PacketConn) (*flows, error) {
	s, err := newSocket(conn)
	if err != nil {
		return nil, err
	}
	return &flows{o: o, port: p, socket: s, open: map[flowKey]*flow{}, refused: limit.NewFailures[netip.Prefix](1, refusedFor)}, nil
}

// serve passes on datagrams until the socket is closed or the context ends. Then it returns when
// all flows have ended.
func (f *flows) serve(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = f.socket.conn.Close() })()
	ctx, cut := context.WithCancel(ctx)
	var carried sync.WaitGroup
	defer carried.Wait()
	defer cut() // without its socket a flow has no use
	buffer := make([]byte, gatewaywire.MaxPacket)
	for {
		n, from, at, err := f.socket.read(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			f.o.g.cfg.Log.Warn().Err(err).Int("port", f.port.Number).Msg("failed to read datagrams at a public port; retrying")
			retry.Wait(ctx, packetPause)
			continue
		}
		if reason := f.take(ctx, &carried, from, at, buffer[:n]); reason != "" {
			f.o.g.cfg.Metrics.dropped.WithLabelValues(reason).Inc()
		}
	}
}

// take gives a datagram to its flow, and returns why it is dropped.
func (f *flows) take(ctx context.Context, carried *sync.WaitGroup, from netip.AddrPort, at netip.Addr, packet []byte) (dropped string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := flowKey{from, at}
	to := f.open[key]
	if to == nil {
		if f.refused.Wait(peer(from), time.Now()) > 0 {
			return droppedRefused
		}
		if f.opening == maxOpening {
			return droppedOpening
		}
		to = newFlow(f, key)
		f.open[key] = to
		f.opening++
		carried.Go(func() { f.carry(ctx, to) })
	}
	if !to.queue(packet) {
		return droppedQueue
	}
	return ""
}

// peer returns what an address counts for.
func peer(from netip.AddrPort) netip.Prefix { return limit.PeerOfText(from.String()) }

// carry passes on a flow until it has ended.
func (f *flows) carry(ctx context.Context, to *flow) {
	began, open, closed := time.Now(), f.o.g.cfg.Metrics.flows, func() {}
	decided := sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.opening--
	})
	defer func() { decided(); closed() }()
	opened := func() {
		decided()
		open.Inc()
		closed = open.Dec
	}
	refused := func() { f.refused.Failed(peer(to.key.from), time.Now()) }
	f.o.carry(ctx, f.port, f.o.g.flows, visitor{
		conn: to, from: netip.AddrPortFrom(to.key.from.Addr().WithZone(""), to.key.from.Port()), at: netip.AddrPortFrom(to.key.at, f.socket.port),
		opened: opened, refused: refused,
	})
	if !to.answered.Load() && time.Since(began) < refusedFor { // the App listens to nothing
		refused()
	}
}
