// Package tunnel is the agent's end of the FRP tunnel (wire 2): one outbound, mutually
// authenticated TLS connection to the control plane's frps, over which Runners reach the
// agent without an inbound port. It embeds frpc, keeps it connected, and hands the
// connections of Runners to the process through a net.Listener.
//
// It is not the place for what runs on those connections (the Runner API and its TLS end
// in the agent), nor for deciding what to do about a refused agent. Together with
// tunnel/server it is the only package that imports frp.
package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// ALPN is the protocol name that both ends negotiate, so that the tunnel's port can be
// shared with others later.
const ALPN = link.ALPN

// SendCA is offered beside it by a client that holds no CA of the control plane: the server sends
// that, too.
const SendCA = link.ALPNSendCA

// Config is what a Tunnel needs to know.
type Config struct {
	// ServerAddress is the host:port of the control plane's tunnel listener.
	ServerAddress string
	// ServerName is the name that the server's certificate must carry; empty means the
	// host of ServerAddress.
	ServerName string
	// AgentID is the agent's own identifier, the same as in its certificate.
	AgentID string
	// Instance tells the replicas of one agent apart, such as by the pod's name: they are
	// connected side by side, and a new connection of one takes over from its old one
	// alone. Two processes with one name take the tunnel from each other.
	Instance string
	// Cluster is asked at every login for the UID of the agent's cluster, by which the
	// server knows a copied identity; nil or an empty answer says nothing.
	Cluster func() string
	// TLS is asked at every dial, so that a renewed certificate is used at the next
	// connection without dropping the present one. The configuration must hold the roots
	// to trust and the agent's certificate; it is cloned before use. It must be the same
	// pointer for as long as nothing changed, or DialAPI proves it anew.
	TLS func(context.Context) (*tls.Config, error)
	// Websocket is the URL of the control plane's HTTPS API, over which the tunnel goes while
	// its own port cannot be reached. Empty for never.
	Websocket string
	// WebsocketTLS is asked for the HTTPS API's TLS as TLS is for the tunnel's; nil for the same.
	WebsocketTLS func(context.Context) (*tls.Config, error)
	// Fallback says when the websocket is tried.
	Fallback Fallback
	// Proxy chooses the proxy for a URL, as http.Transport's field does; nil connects
	// directly. http, https and socks5 proxies are understood.
	Proxy func(*url.URL) (*url.URL, error)
	// Log takes the tunnel's log and, through it, frp's.
	Log zerolog.Logger
	// Backoff spaces attempts to connect; zero values mean the defaults.
	Backoff Backoff
}

// Backoff spaces attempts to connect: exponential, and random by half either way at every
// step including the last, so that many agents do not return in step.
type Backoff struct {
	// Initial is the mean wait before the first retry (1 s).
	Initial time.Duration
	// Max is the mean wait after many failures (15 s).
	Max time.Duration
	// Stable is how long a connection must have lived for the waits to start over (30 s).
	Stable time.Duration
}

// Tunnel keeps one agent connected to one control plane.
type Tunnel struct {
	cfg      Config
	host     string
	status   *tracker
	ways     *memory
	listener *listener
	live     atomic.Pointer[mux.Session] // the present connection's
	calls    atomic.Pointer[callable]    // while it is up and takes them
	draining atomic.Bool
}

// New checks the configuration. Nothing is dialled before Run.
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
		return nil, fmt.Errorf("tunnel: %q is no URL of an HTTPS API; set the control plane's", cfg.Websocket)
	case cfg.TLS == nil:
		return nil, errors.New("tunnel: no TLS source; the tunnel only runs over mutual TLS")
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if cfg.Cluster == nil {
		cfg.Cluster = func() string { return "" }
	}
	cfg.Backoff = cfg.Backoff.withDefaults()
	cfg.Fallback = cfg.Fallback.withDefaults()
	link.RedirectFRPLog(cfg.Log)
	return &Tunnel{
		cfg: cfg, host: host, status: newTracker(), listener: newListener(cfg.AgentID), ways: &memory{patience: cfg.Fallback.Patience},
	}, nil
}

func isHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// Listener yields the connections of Runners. It lives as long as the Tunnel does, across
// reconnects, and may be closed by an http.Server's shutdown: later connections are then
// closed as they come.
func (t *Tunnel) Listener() net.Listener { return t.listener }

// Status says how the tunnel is.
func (t *Tunnel) Status() Status { return t.status.get() }

// Changed returns a channel that is closed at the next change of Status. Take it before
// reading Status so that no change is missed.
func (t *Tunnel) Changed() <-chan struct{} { return t.status.changed() }

func (b Backoff) withDefaults() Backoff {
	if b.Initial <= 0 {
		b.Initial = time.Second
	}
	if b.Max < b.Initial {
		b.Max = max(15*time.Second, b.Initial)
	}
	if b.Stable <= 0 {
		b.Stable = 30 * time.Second
	}
	return b
}
