// Package client is for a Runner: it calls the Runner API of an agent through the control plane,
// and calls again where that is safe.
package client

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// DefaultPatience is how long a client tries to reach an agent.
const DefaultPatience = 30 * time.Second

// Config is what a Runner needs to reach one agent. All of it but the certificate comes from
// the agent's announcement and the Runner's credentials.
type Config struct {
	// AgentID is the agent that must answer.
	AgentID string
	// ServerName is AGENT_ID.AGENTS_DOMAIN.
	ServerName string
	// EdgeAddresses are equal ways (host:port) to the agent. A client begins with any of
	// them, so that clients spread, and stays with the one that worked last; one that
	// failed is avoided for a while.
	EdgeAddresses []string
	// TrustDomain is that of the agent's certificate.
	TrustDomain string
	// Roots is the control plane's CA.
	Roots *x509.CertPool
	// Certificate is asked for the Runner's certificate at each connection.
	Certificate func() (*tls.Certificate, error)

	// Patience is how long to go on trying while the agent cannot be reached,
	// unless the call's context ends earlier; DefaultPatience when zero.
	Patience time.Duration
	// UserAgent is sent to the agent.
	UserAgent string
	// Around, if set, wraps the transport of all calls, to measure or inspect them. Of a WebSocket,
	// that is the handshake.
	Around func(http.RoundTripper) http.RoundTripper
	// Slow, if set, is called once a second for each call without an answer. It may be called
	// concurrently.
	Slow func(Slow)
	// Log hears of tries that failed. The zero value is silent.
	Log *zerolog.Logger
}

func (c Config) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("runner API client: "+what))
		}
	}
	need(c.ServerName != "", "ServerName is missing: it is in the agent's announcement")
	need(len(c.EdgeAddresses) > 0, "EdgeAddresses is empty: they are in the agent's announcement; an agent that never was online has none")
	need(c.TrustDomain != "", "TrustDomain is missing: it is in the Runner's credentials")
	need(c.Roots != nil, "Roots is missing: the CA is in the Runner's credentials")
	need(c.Certificate != nil, "Certificate is missing: it is in the Runner's credentials")
	return errors.Join(errs...)
}

// Client calls one agent's Runner API. It is safe for concurrent use and keeps its connections.
// Create one per agent, and call Close at the end.
//
// Its calls are in handles by noun, as client-go has them: c.Apps().Deploy, c.Secrets().Set. They
// are methods and not fields, so that no user of a shared client can replace one. A verb means the
// same in all handles: Set creates an object or replaces its content, Deploy rolls out, Run runs
// something to its end, and Wait waits for the outcome.
//
// The client retries calls where that is safe: reads and declarative writes by nature, and commands
// by an Idempotency-Key. It generates a key if the caller gave none. Callers must not set
// WriteOptions.Caller: the certificate identifies the caller.
type Client struct{ core *core }

// core makes the calls of all handles.
type core struct {
	config   Config
	calls    *retryablehttp.Client
	streams  *retryablehttp.Client // logs and events, whose readers may be slow
	upgrades *dialer               // connections that become WebSockets

	maxAnswer int64 // in bytes
}

// Times of the client. There is none for a whole call: it would cut followed
// logs. A peer that is gone is noticed by pings.
const (
	dialTimeout      = 5 * time.Second  // per edge address
	handshakeTimeout = 10 * time.Second // through the tunnel to the agent
	headerTimeout    = shortWait + runnerapi.DefaultCallTimeout + 10*time.Second
	retryMin         = 200 * time.Millisecond
	retryMax         = 5 * time.Second
)

// New returns a client; it does not connect yet.
func New(c Config) (*Client, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	if c.AgentID == "" {
		c.AgentID = c.ServerName
	}
	c.UserAgent = cmp.Or(c.UserAgent, "pipeops-runnerapi")
	known := newEndpoints(c.EdgeAddresses)
	shared := &core{config: c, upgrades: newDialer(c, wire.HTTP1, known), maxAnswer: maxAnswer}
	shared.calls = shared.over(newTransport(newDialer(c, wire.HTTP2, known), wire.StreamWindow))
	shared.streams = shared.over(newTransport(newDialer(c, wire.HTTP2, known), wire.FollowedWindow))
	return &Client{shared}, nil
}

// newTransport returns a transport with its own connections. In each of their streams the agent may
// be ahead of the reader by the window.
func newTransport(d *dialer, window int) *http.Transport {
	transport := &http.Transport{
		// The dialer does the TLS, so to net/http the connection is a plain one:
		// it takes a connection that is not a bare *tls.Conn in no other way.
		DialContext:            d.dial,
		Protocols:              &http.Protocols{},
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        4 * time.Minute, // before the agent's
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: wire.ConnectionWindow,
			MaxReceiveBufferPerStream:     window,
			SendPingTimeout:               wire.PingAfter,
			PingTimeout:                   wire.PingTimeout,
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

// over makes calls, and tries again what failed.
func (c *core) over(transport *http.Transport) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: c.around(transport), CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the Runner API has none
		}},
		RetryWaitMin: retryMin, RetryWaitMax: retryMax, RetryMax: maxTries,
		CheckRetry: c.checkRetry, Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		// Another try goes over another connection, so to another replica of the agent if it
		// has one. Connections that serve other calls stay.
		PrepareRetry: func(*http.Request) error {
			transport.CloseIdleConnections()
			return nil
		},
	}
}

// around keeps what http.Client.CloseIdleConnections looks for.
func (c *core) around(transport *http.Transport) http.RoundTripper {
	if c.config.Around == nil {
		return transport
	}
	return struct {
		http.RoundTripper
		closer
	}{c.config.Around(transport), transport}
}

type closer interface{ CloseIdleConnections() }

// Close closes idle connections. Calls in progress end with their contexts.
func (c *Client) Close() {
	c.core.calls.HTTPClient.CloseIdleConnections()
	c.core.streams.HTTPClient.CloseIdleConnections()
}
