package limit

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// Config configures a Listener. Zero values select the defaults.
type Config struct {
	// Name is the listener's name in the log.
	Name string
	// Connections is how many may be open at a time (65536).
	Connections int
	// PerPeer is how many of them one address may have (16384), and how many new ones it may open
	// at once. An IPv6 network of 64 bits counts as one address.
	PerPeer int
	// NewPerSecond is how many new ones it may open per second in the long run (256).
	NewPerSecond int
	// Shared are networks whose addresses each stand for many peers, such as a load balancer or a
	// NAT. The limits of one peer do not apply to them.
	Shared []netip.Prefix
	// Handshakes, if not zero, is how many connections may be open for which Settled was not called
	// yet. Beyond that, the one for which we have waited longest is closed. As many connections may
	// wait for one of Turns; beyond that none is accepted.
	Handshakes int
	// Turns, if not nil, are the turns that TakeTurn takes for the connections.
	Turns *Turns
	// Quiet is how many addresses without open connections are remembered, for their rate (65536).
	Quiet int
	Log   zerolog.Logger
}

// The defaults of Config. Ten thousand agents behind one address that all reconnect at once are
// admitted at once. With several replicas each, those beyond 16384 are admitted at 256 a second,
// for which their own retries last long enough. Four addresses can fill a listener: more than that
// is for a firewall in front.
const (
	DefaultConnections  = 65536
	DefaultPerPeer      = 16384
	DefaultNewPerSecond = 256
	defaultQuiet        = 65536
)

func (c Config) withDefaults() Config {
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.PerPeer = cmp.Or(c.PerPeer, DefaultPerPeer)
	c.NewPerSecond = cmp.Or(c.NewPerSecond, DefaultNewPerSecond)
	c.Quiet = cmp.Or(c.Quiet, defaultQuiet)
	return c
}

// Stats are counts for metrics.
type Stats struct {
	Open, Handshakes, Peers int    // now
	Accepted, Refused       uint64 // since the start
	// Failing reports that no connections can be accepted: the system is out of open files, or the
	// listener is closed.
	Failing bool
}

// Listener accepts connections within its limits. It resets those beyond them before a byte is
// read, and so before a TLS handshake: their peers see a refused connection and retry.
type Listener struct {
	net.Listener
	cfg  Config
	room *Room // nil without Handshakes
	open context.Context
	shut context.CancelFunc
	told rate.Sometimes

	mu    sync.Mutex
	peers *table[netip.Prefix]
	stats Stats
	// failed is when accepting failed last; it stays set if the listener is closed.
	failed time.Time
	closed bool
}

// logEvery is the interval of log lines about refusals.
const logEvery = 10 * time.Second

// Seldom returns a limiter for log lines that a peer can cause as often as it likes.
func Seldom() rate.Sometimes { return rate.Sometimes{First: 1, Interval: logEvery} }

// Listen returns a listener that applies limits to ln.
func Listen(ln net.Listener, cfg Config) *Listener {
	cfg = cfg.withDefaults()
	l := &Listener{
		Listener: ln, cfg: cfg, peers: newTable[netip.Prefix](cfg.Quiet, rate.Limit(cfg.NewPerSecond), cfg.PerPeer),
		told: Seldom(),
	}
	l.open, l.shut = context.WithCancel(context.Background())
	if cfg.Handshakes > 0 {
		l.room = NewRoom(cfg.Handshakes)
	}
	return l
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if l.room != nil && !l.room.Await(l.open) {
			return nil, net.ErrClosed
		}
		raw, err := l.Listener.Accept()
		if err != nil {
			l.noteFailure(err)
			return nil, err
		}
		from := PeerOf(raw.RemoteAddr())
		if reason := l.enter(from, time.Now()); reason != "" {
			l.refuse(raw, from, reason)
			continue
		}
		c := &conn{Conn: wrapconn.Conn{Conn: raw}, leave: sync.OnceFunc(func() { l.leave(from, time.Now()) })}
		var place *Place
		if l.room != nil {
			place = l.room.Take(raw)
			c.settled = place.Leave
		}
		if l.cfg.Turns != nil {
			c.Conn.Conn = l.cfg.Turns.Conn(raw, place)
		}
		return c, nil
	}
}

// Enter counts a connection that does not come by Accept, such as one of QUIC at the same port.
// leave ends that, and may be called again. ok is false beyond the limits.
func (l *Listener) Enter(addr net.Addr) (leave func(), ok bool) {
	from := PeerOf(addr)
	if reason := l.enter(from, time.Now()); reason != "" {
		l.logRefusal(from, reason)
		return nil, false
	}
	return sync.OnceFunc(func() { l.leave(from, time.Now()) }), true
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.shut()
	return l.Listener.Close()
}

// enter counts a connection, or returns why it is refused.
func (l *Listener) enter(from netip.Prefix, now time.Time) (refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if refusal != "" {
			l.stats.Refused++
		}
	}()
	if l.stats.Open >= l.cfg.Connections {
		return "connections"
	}
	e := l.peers.get(from)
	defer l.peers.settle(e, now)
	if !within(from, l.cfg.Shared) {
		if e.open >= l.cfg.PerPeer {
			return "connections per peer"
		}
		if !e.pace.AllowN(now, 1) {
			return "new connections per second and peer"
		}
	}
	e.open++
	l.stats.Open++
	l.stats.Accepted++
	return ""
}

func (l *Listener) leave(from netip.Prefix, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Open--
	e := l.peers.get(from)
	e.open--
	l.peers.settle(e, now)
}

// failingFor is how long a failure to accept counts: the accepting loop retries sooner.
const failingFor = 2 * time.Second

func (l *Listener) noteFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.closed = time.Now(), errors.Is(err, net.ErrClosed)
}

// refuse resets a connection: an orderly close would leave state in the system.
func (l *Listener) refuse(raw net.Conn, from netip.Prefix, limit string) {
	if tcp, ok := raw.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
	l.logRefusal(from, limit)
}

// logRefusal logs a refusal.
func (l *Listener) logRefusal(from netip.Prefix, limit string) {
	l.told.Do(func() {
		l.cfg.Log.Warn().Str("listener", l.cfg.Name).Stringer("peer", from).Str("limit", limit).Uint64("refused", l.Stats().Refused).
			Msg("refusing connections over the limit; if many agents share one address, raise the limits")
	})
}

// Stats returns the current counts.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Failing = l.closed || time.Since(l.failed) < failingFor
	s.Peers = len(l.peers.peers)
	if l.room != nil {
		s.Handshakes = l.room.Len()
	}
	return s
}

// conn is a connection that is counted until it is closed.
type conn struct {
	wrapconn.Conn
	leave, settled func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.settle()
	c.leave()
	return c.Conn.Close()
}

func (c *conn) settle() {
	if c.settled != nil {
		c.settled()
	}
}

// Settled reports to the Listener of a connection, or of the TLS connection on it, that its
// handshake is done and its first request has arrived.
func Settled(c net.Conn) {
	for {
		switch at := c.(type) {
		case *conn:
			at.settle()
			return
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return
		}
	}
}
