package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/direct"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/unsent"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeader bounds a request's header, and maxStreams the HTTP/2 streams of one connection.
	maxHeader, maxStreams = 64 << 10, 128
	// maxFrame is the least that HTTP/2 allows, and what clients send. net/http makes room for a
	// frame when its nine bytes of header have come, a megabyte if it may be that large.
	maxFrame = 16 << 10
	// progress is how long a client may take to send or to accept the next bytes.
	progress = time.Minute
	// drain is how long requests may go on when the gateway stops. In the time leave of it, clients
	// may still send requests.
	drain, leave = 20 * time.Second, 3 * time.Second
)

// Config configures a Gateway. Table, Dial, TLS, AgentName and Metrics are required.
type Config struct {
	Table *Table
	// Dial opens a stream of public traffic to an agent.
	Dial func(ctx context.Context, agentID string) (net.Conn, error)
	// TLS has the certificates.
	TLS *tls.Config
	// Listen opens a public port that an App has; nil where there are none.
	Listen func(ctx context.Context, port int) (net.Listener, error)
	// ListenUDP opens one of UDP. It is there if Listen is.
	ListenUDP func(ctx context.Context, port int) (net.PacketConn, error)
	// Own answers requests for the table's own host; nil where there is none.
	Own http.Handler
	// Challenge answers ACME's HTTP challenges, and passes other requests on; nil where there are
	// none.
	Challenge func(next http.Handler) http.Handler
	// HTTPSPort is the port to which plain HTTP is redirected; 443 if zero.
	HTTPSPort int
	// HTTP3Port is the UDP port at which visitors reach ServeHTTP3, for Alt-Svc; 0 for none.
	HTTP3Port int
	// HSTS is for how long browsers are asked to use HTTPS alone; zero does not ask.
	HSTS time.Duration
	// AccessLog logs each request.
	AccessLog bool
	Limits    Limits
	// Direct configures how clusters are reached at their own load balancers.
	Direct   Direct
	Patience Patience
	// AgentName returns what metrics call an agent.
	AgentName func(agentID string) string
	Metrics   *Metrics
	// Tracer makes spans of requests; nil for none.
	Tracer trace.TracerProvider
	Log    zerolog.Logger
}

// Patience is how long clients are waited for. Zero values select the defaults.
type Patience struct {
	// Header is how long a request's header may take (10 s), Idle how long a connection may have no
	// request (2 min), and Progress how long the next bytes of a body may take, either way (1 min).
	Header, Idle, Progress time.Duration
	// Start is how long requests wait for what restarts (5 s): for the agent, or for the table.
	Start time.Duration
	// Leave is how long clients have to leave when the gateway stops (3 s).
	Leave time.Duration
}

func (p Patience) withDefaults() Patience {
	return Patience{
		cmp.Or(p.Header, headerTimeout), cmp.Or(p.Idle, idleTimeout), cmp.Or(p.Progress, progress),
		cmp.Or(p.Start, gatewaywire.StartPatience), cmp.Or(p.Leave, leave),
	}
}

// Gateway proxies public requests to agents.
type Gateway struct {
	cfg       Config
	proxy     http.Handler
	transport *unsent.Transport
	requests  *underWay
	streams   *underWay
	flows     *underWay
	prober    *direct.Prober // nil in tunnel mode
	dial      dialFunc
	ports     *openPorts
}

// New returns a Gateway.
func New(cfg Config) *Gateway {
	cfg.Limits, cfg.Patience = cfg.Limits.WithDefaults(), cfg.Patience.withDefaults()
	g := &Gateway{cfg: cfg, requests: newUnderWay(cfg.Limits.Requests), streams: newUnderWay(cfg.Limits.Streams), flows: newUnderWay(cfg.Limits.Flows)}
	g.dial, g.ports = newHolder(cfg.Dial, cfg.Patience.Start).dialAgent, newOpenPorts(g)
	g.transport = newTransport(g.dial)
	g.prober = g.newProber()
	g.proxy = g.newProxy()
	return g
}

// Serve serves HTTPS and HTTP until the context ends. It closes the listeners; plain may be nil.
// Connections wait until the routes are known, though not for long.
func (g *Gateway) Serve(ctx context.Context, secure, plain net.Listener) error {
	defer g.transport.CloseIdleConnections()
	g.cfg.Table.await(ctx, g.cfg.Patience.Start)
	group, ctx := errgroup.WithContext(ctx)
	srv := g.server(g)
	srv.TLSConfig = recognizable(g.cfg.TLS)
	group.Go(func() error { return g.probe(ctx) })
	g.ports.begin(ctx)
	group.Go(func() error { return g.ports.serve(ctx) })
	g.run(ctx, group, srv, listenPassing(secure, g))
	if plain != nil {
		g.run(ctx, group, g.server(g.plain()), plain)
	}
	return group.Wait()
}

func (g *Gateway) server(h http.Handler) *http.Server {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: g.cfg.Patience.Header, IdleTimeout: g.cfg.Patience.Idle, MaxHeaderBytes: maxHeader,
		ErrorLog:                     httpserver.ErrorLog(g.cfg.Log, "gateway: "),
		DisableGeneralOptionsHandler: true,
		Protocols:                    new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
			WriteByteTimeout: g.cfg.Patience.Progress, SendPingTimeout: g.cfg.Patience.Progress,
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateActive {
				limit.Settled(c)
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	return srv
}

// run serves until the context ends, and then lets requests finish.
func (g *Gateway) run(ctx context.Context, group *errgroup.Group, srv *http.Server, ln net.Listener) {
	group.Go(func() error {
		return httpserver.Run(ctx, srv, moving{ln, g.cfg.Patience.Progress}, httpserver.Stop{Linger: g.cfg.Patience.Leave, Drain: drain})
	})
}

// moving is a listener whose connections are closed when the other end accepts nothing for long.
type moving struct {
	net.Listener
	within time.Duration
}

// Accept implements net.Listener.
func (m moving) Accept() (net.Conn, error) {
	conn, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &movingConn{wrapconn.Conn{Conn: conn}, m.within}, nil
}

type movingConn struct {
	wrapconn.Conn
	within time.Duration
}

// Write implements io.Writer.
func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
