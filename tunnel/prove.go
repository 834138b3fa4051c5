package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const (
	// proveTimeout bounds a proof: a call waits for it.
	proveTimeout = 10 * time.Second
	// proveAgain is how soon one that failed is tried again.
	proveAgain = time.Minute
)

var errNoProof = errors.New("the server took no proof")

// callable is a session that is up.
type callable struct {
	mux       *mux.Session
	transport Transport
	made      atomic.Pointer[tls.Config] // what the source of its TLS answered, or of its last proof

	proving sync.Mutex
	tried   *tls.Config
	again   time.Time // when a retry is allowed
}

func newCallable(mux *mux.Session, l *line) *callable {
	up := &callable{mux: mux, transport: l.transport}
	up.made.Store(l.made)
	return up
}

// prove proves the current certificate in a session that was made with another, and makes the
// server prove itself to the current CAs: TLS inside the session, only for that. Agents'
// certificates live for a day, their tunnels for months.
func (t *Tunnel) prove(ctx context.Context, up *callable, now *tls.Config) error {
	if !up.proving.TryLock() {
		return errOtherCertificate // others do not wait
	}
	defer up.proving.Unlock()
	switch {
	case up.made.Load() == now:
		return nil
	case up.tried == now && time.Now().Before(up.again):
		return errOtherCertificate
	}
	up.tried, up.again = now, time.Now().Add(proveAgain)
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	if err := t.proveIn(ctx, up, now); err != nil {
		t.cfg.Log.Debug().Err(err).Msg("tunnel not authenticated with the renewed certificate; falling back to direct HTTPS")
		return err
	}
	up.made.Store(now)
	return nil
}

func (t *Tunnel) proveIn(ctx context.Context, up *callable, now *tls.Config) error {
	stream, err := up.mux.OpenStream()
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })()
	cfg := now.Clone()
	cfg.MinVersion, cfg.NextProtos = tls.VersionTLS13, []string{link.ALPNProof}
	if up.transport == TCP {
		cfg.ServerName = t.cfg.ServerName
	} else if u, err := url.Parse(t.cfg.Websocket); err == nil && cfg.ServerName == "" {
		cfg.ServerName = u.Hostname()
	}
	conn := tls.Client(link.NewMarked(stream, link.ProofMark), cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[0] != link.ProofMark || conn.ConnectionState().NegotiatedProtocol != link.ALPNProof {
		return errNoProof
	}
	return nil
}
