// Package tunnel is the agent's end of the FRP tunnel (wire 2): one outbound, mutually
// authenticated TLS connection to the control plane's frps. Over it, Runners reach the agent
// without an inbound port. The package embeds frpc, keeps it connected, and passes the connections
// of Runners to the process through a net.Listener.
//
// It does not handle what runs on those connections: the Runner API and its TLS end in the agent.
// It also does not decide what to do about a refused agent. Together with tunnel/server it is the
// only package that imports frp.
package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// ALPN is the protocol name that both ends negotiate, so that the tunnel's port can be shared
// later.
const ALPN = link.ALPN

// SendCA is also offered by a client that holds no CA of the control plane: the server then sends
// that, too.
const SendCA = link.ALPNSendCA

// Config configures a Tunnel.
type Config struct {
	// ServerAddress is the host:port of the control plane's tunnel listener.
	ServerAddress string
	// ServerName is the name that the server's certificate must carry; empty means the
	// host of ServerAddress.
	ServerName string
	// AgentID is the agent's own identifier, the same as in its certificate.
	AgentID string
	// Instance distinguishes the replicas of one agent, such as by the pod's name. Replicas are
	// connected side by side, and a new connection takes over only from the old one of its replica.
	// Two processes with one name take over the tunnel from each other.
	Instance string
	// Cluster is called at every login for the UID of the agent's cluster, by which the server
	// recognizes a copied identity. It may be nil or return an empty string.
	Cluster func() string
	// TLS is called at every dial, so that a renewed certificate is used for the next connection
	// without dropping the current one. The configuration must hold the roots to trust and the
	// agent's certificate; it is cloned before use. It must be the same pointer for as long as
	// nothing changed. Otherwise DialAPI proves it again.
	TLS func(context.Context) (*tls.Config, error)
	// The URL of the control plane's HTTPS API, over which the tunnel goes while its own port
	// cannot be reached. Empty means never.
	Websocket string
	// WebsocketTLS returns the TLS configuration for the HTTPS API, as TLS does for the tunnel's;
	// nil means the same.
	WebsocketTLS func(context.Context) (*tls.Config, error)
	// Fallback decides when the WebSocket is tried.
	Fallback Fallback
	// Proxy returns the proxy for a URL, as http.Transport's field does; nil connects directly.
	// http, https and socks5 proxies are supported.
	Proxy proxy.Func
	// TakePublic makes the tunnel take streams of public traffic, which come from the Public
	// listener. Without it they are closed on arrival.
	TakePublic bool
	// Log receives the tunnel's log and, through it, frp's.
	Log zerolog.Logger
	// Backoff spaces connection attempts; zero values select the defaults.
	Backoff Backoff
}

// Backoff spaces connection attempts. It is exponential, and random by half either way at every
// step including the last, so that many agents do not return at the same time.
type Backoff struct {
	// Initial is the mean wait before the first retry (1 s).
	Initial time.Duration
	// Max is the mean wait after many failures (15 s).
	Max time.Duration
}

// Tunnel keeps one agent connected to one control plane.
type Tunnel struct {
	cfg        Config
	explain    explainer
	status     *tracker
	transports *memory
	listener   *listener
	public     *listener
	live       atomic.Pointer[mux.Session] // of the current connection
	calls      atomic.Pointer[callable]    // while it is up and accepts calls
	draining   atomic.Bool
}

// New returns a Tunnel after it has checked the configuration. Run connects.
func New(cfg Config) (*Tunnel, error) {
	host, _, err := net.SplitHostPort(cfg.ServerAddress)
	switch {
	case err != nil || host == "":
		return nil, errors.New("tunnel: server address must be host:port; set the address the control plane gave at registration")
	case cfg.AgentID == "":
		return nil, errors.New("tunnel: agent ID is empty; register the agent first")
	case !link.ValidInstance(cfg.Instance):
		return nil, fmt.Errorf("tunnel: the instance cannot be called %q; use at most 253 letters, digits, dots, dashes and underscores, as in a host's name", cfg.Instance)
	case cfg.Websocket != "" && !isHTTPS(cfg.Websocket):
		return nil, fmt.Errorf("tunnel: %q is not a URL of an HTTPS API; set the control plane's", cfg.Websocket)
	case cfg.TLS == nil:
		return nil, errors.New("tunnel: no TLS source; the tunnel only runs over mutual TLS")
	}
	cfg.ServerName = cmp.Or(cfg.ServerName, host)
	if cfg.Cluster == nil {
		cfg.Cluster = func() string { return "" }
	}
	cfg.Backoff = cfg.Backoff.withDefaults()
	cfg.Fallback = cfg.Fallback.withDefaults()
	link.RedirectFRPLog(cfg.Log)
	return &Tunnel{
		cfg: cfg, explain: explainer{cfg.ServerAddress}, status: newTracker(), listener: newListener(cfg.AgentID), public: newListener(cfg.AgentID), transports: &memory{patience: cfg.Fallback.Patience},
	}, nil
}

func isHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// Listener returns the listener for the connections of Runners. It lives as long as the Tunnel
// does, across reconnects. An http.Server's shutdown may close it: later connections are then
// closed on arrival.
func (t *Tunnel) Listener() net.Listener { return t.listener }

// Public returns the listener for streams of public traffic. It lives as long as Listener's does.
// The two never return each other's connections.
func (t *Tunnel) Public() net.Listener { return t.public }

// Status returns the tunnel's status.
func (t *Tunnel) Status() Status { return t.status.get() }

// Changed returns a channel that is closed at the next change of Status. Take it before
// reading Status so that no change is missed.
func (t *Tunnel) Changed() <-chan struct{} { return t.status.changed() }

func (b Backoff) withDefaults() Backoff {
	b.Initial = cmp.Or(b.Initial, time.Second)
	if b.Max < b.Initial {
		b.Max = max(15*time.Second, b.Initial)
	}
	return b
}
