package peerlink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	TrustDomain string
	// TLS has the certificate and the RootCAs of this moment. Gateways.ForGateway makes this a
	// gateway's.
	TLS func() (*tls.Config, error)
}

// connectTimeout bounds reaching another control plane: one that is gone without a word
// shall leave time for the next.
const connectTimeout = 3 * time.Second

// KeepAlive notices within 14 s that the other end is gone without a word.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}
}

// Client hands connections to other control planes.
type Client struct {
	cfg    ClientConfig
	life   context.Context //nolint:containedctx // of the connections that are handed on
	end    context.CancelFunc
	relays sync.WaitGroup
}

// NewClient returns a Client. Close ends the connections that it has handed over.
func NewClient(cfg ClientConfig) *Client {
	life, end := context.WithCancel(context.Background())
	return &Client{cfg: cfg, life: life, end: end}
}

// Close closes the connections that were handed on. Nothing may be handed over any more.
func (c *Client) Close() {
	c.end()
	c.relays.Wait()
}

// Handover connects conn with an agent at the control plane of that name and address, and owns it
// from then on. On an error the caller still owns it. The errors include the other control plane's
// server.ErrNotConnected and server.ErrBusy.
func (c *Client) Handover(ctx context.Context, peer, address, agentID string, conn net.Conn) error {
	far, err := c.dial(ctx, peer, address)
	if err != nil {
		return fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	if err := ask(ctx, far, request{Runner, agentID, addrPort(conn.RemoteAddr())}); err != nil {
		_ = far.Close()
		return fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	c.relays.Go(func() { c.relay(conn, far) })
	return nil
}

// DialPublic returns a connection of public traffic to an agent at the control plane of that name
// and address. The errors are those of Handover.
func (c *Client) DialPublic(ctx context.Context, peer, address, agentID string) (net.Conn, error) {
	far, err := c.dial(ctx, peer, address)
	if err != nil {
		return nil, fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	if err := ask(ctx, far, request{Public, agentID, addrPort(far.LocalAddr())}); err != nil {
		_ = far.Close()
		return nil, fmt.Errorf("control plane %s at %s: %w", peer, address, err)
	}
	return &dialled{far, context.AfterFunc(c.life, func() { _ = far.Close() })}, nil //nolint:contextcheck // it lives as long as the Client
}

// dialled is a connection that ends with its Client.
type dialled struct {
	*tls.Conn
	stop func() bool
}

// Close implements net.Conn.
func (d *dialled) Close() error {
	d.stop()
	return d.Conn.Close()
}

func (c *Client) dial(ctx context.Context, peer, address string) (*tls.Conn, error) {
	cfg, err := c.cfg.TLS()
	if err != nil {
		return nil, err
	}
	cfg.MinVersion = tls.VersionTLS13
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = []string{alpn}
	}
	cfg.ServerName = ServerName(c.cfg.TrustDomain, peer)
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		got, err := nodeOf(cs, c.cfg.TrustDomain)
		if err == nil && got != peer {
			err = fmt.Errorf("it is control plane %s", got)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{KeepAliveConfig: KeepAlive()}, Config: cfg}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// ask sends the agent that a connection is for, and reads whether the other control plane accepts
// it.
func ask(ctx context.Context, far *tls.Conn, r request) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	unblock := context.AfterFunc(ctx, func() { _ = far.SetDeadline(time.Unix(1, 0)) })
	var status [1]byte
	if _, err = far.Write(text); err == nil {
		_, err = io.ReadFull(far, status[:])
	}
	switch {
	case !unblock():
		return ctx.Err()
	case err != nil:
		return err
	}
	switch status[0] {
	case statusTaken:
		return nil
	case statusNotConnected:
		return server.ErrNotConnected
	case statusBusy:
		return server.ErrBusy
	}
	return errors.New("it could not reach the agent")
}

// relayBuffer is what a TLS record holds, twice.
const relayBuffer = 32 << 10

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

// relay copies both ways until either end is through, then closes both.
func (c *Client) relay(runner net.Conn, far *tls.Conn) {
	hangUp := func() {
		_ = runner.Close()
		_ = far.Close()
	}
	stop := context.AfterFunc(c.life, hangUp)
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		defer hangUp()
		pump(runner, far)
	})
	pump(far, runner)
	hangUp()
	back.Wait()
}

// pump copies one way. Its errors are the usual end of a connection.
func pump(dst io.Writer, src io.Reader) {
	buffer := relayBuffers.Get().(*[relayBuffer]byte)
	defer relayBuffers.Put(buffer)
	_, _ = io.CopyBuffer(writerOnly{dst}, readerOnly{src}, buffer[:])
}

// Without the others' own ways to copy, which take their own buffers.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)
