package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

const (
	// connectTimeout bounds everything from name resolution to the TLS handshake. A control plane
	// to which thousands return makes each wait for its turn. A later retry costs both ends more
	// than waiting.
	connectTimeout = 45 * time.Second
	// reachTimeout bounds what comes before the handshake.
	reachTimeout = 20 * time.Second
)

// connectTCP makes the authenticated connection to the tunnel's own port.
func (t *Tunnel) connectTCP(ctx context.Context) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg, made, err := t.tlsConfig(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := t.reach(ctx)
	if err != nil {
		return nil, err
	}
	socket := link.NewSocket(raw)
	conn := tls.Client(socket, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return &line{Conn: conn, below: socket, transport: TCP, made: made}, nil
}

func (t *Tunnel) reach(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	t.transports.dial(true)
	defer t.transports.dial(false)
	return t.dial(ctx, t.cfg.ServerAddress)
}

// tlsConfig returns the TLS configuration for the tunnel's port, and the one that its source
// returned.
func (t *Tunnel) tlsConfig(ctx context.Context) (cfg, made *tls.Config, err error) {
	made, err = t.source(TCP)(ctx)
	if err != nil {
		return nil, nil, t.explain.wrap("get the certificate to connect to", err, "check the agent's identity; it is tried again by itself")
	}
	cfg = made.Clone()
	cfg.ServerName = t.cfg.ServerName
	cfg.MinVersion = tls.VersionTLS13
	cfg.DynamicRecordSizingDisabled = true // writes are batched, so small records only cost
	if !slices.Contains(cfg.NextProtos, ALPN) {
		cfg.NextProtos = append([]string{ALPN}, cfg.NextProtos...)
	}
	return cfg, made, nil
}

// dial reaches an address directly or through the proxy that the configuration chooses.
func (t *Tunnel) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := t.cfg.Proxy.Dial(ctx, address)
	if failed, ok := proxy.Explain(err); ok {
		return nil, t.explain.wrap(opProxy, failed, failed.Fix)
	}
	return conn, err
}
