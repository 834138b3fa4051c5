package tunnel

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Probe connects to the server as Run would, and returns the transport that worked or the error. It
// does not log in, so the agent's existing tunnel is not affected. Without a certificate of the
// agent, it returns once the server has proven its identity, and uses only TCP.
func Probe(ctx context.Context, cfg Config) (Transport, error) {
	t, err := New(cfg)
	if err != nil {
		return "", err
	}
	settings, _, err := t.tlsConfig(ctx)
	if err != nil {
		return "", err
	}
	proven := len(settings.Certificates) > 0
	if !proven {
		t.cfg.Websocket = "" // which requires a certificate
	}
	conn, err := t.connect(ctx)
	if err != nil {
		return "", t.explain.connect(err)
	}
	if !proven {
		return conn.transport, conn.Close()
	}
	return conn.transport, t.ping(ctx, conn)
}

// ping checks whether the server has accepted the certificate, and closes the connection.
func (t *Tunnel) ping(ctx context.Context, conn *line) error {
	defer func() { _ = conn.Close() }()
	remembering := &causeConn{Conn: conn}
	mux := link.Client(remembering, conn.below, nil)
	defer func() { _ = mux.Close() }()
	defer context.AfterFunc(ctx, func() { _ = mux.Close() })()
	// Only a server that has accepted the certificate answers.
	if _, err := mux.Ping(); err != nil {
		if cause := remembering.cause(); cause != nil {
			return t.explain.lost(cause)
		}
		return t.explain.wrap(opLogIn, err, actNewer)
	}
	return nil
}
