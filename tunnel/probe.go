package tunnel

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Probe connects to the server as Run would and says what keeps it from that. It
// does not log in, so the tunnel that the agent may have stays as it is. Without
// a certificate of the agent it answers nil once the server has proven itself.
func Probe(ctx context.Context, cfg Config) error {
	t, err := New(cfg)
	if err != nil {
		return err
	}
	settings, err := t.tlsConfig(ctx)
	if err != nil {
		return err
	}
	conn, err := t.connect(ctx)
	if err != nil {
		return t.connectError(err)
	}
	defer func() { _ = conn.Close() }()
	if len(settings.Certificates) == 0 {
		return nil
	}
	remembering := &causeConn{Conn: conn}
	mux, err := link.Client(remembering, conn.below, t.cfg.Log)
	if err != nil {
		return t.connectError(err)
	}
	defer func() { _ = mux.Close() }()
	defer context.AfterFunc(ctx, func() { _ = mux.Close() })()
	// Only a server that has accepted the certificate answers.
	if _, err := mux.Ping(); err != nil {
		if cause := remembering.cause(); cause != nil {
			return t.lostError(cause)
		}
		return t.wrap(opLogIn, err, actNewer)
	}
	return nil
}
