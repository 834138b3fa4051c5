package tunnel

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const opDrain = "stop taking connections from"

var errSilent = errors.New("it did not answer")

// Drain asks the server for no more connections. It returns once the pending ones have arrived:
// other replicas of the agent get the next ones. Open connections continue. From then on, a lost
// tunnel is not reconnected.
func (t *Tunnel) Drain(ctx context.Context) error {
	t.draining.Store(true)
	t.status.awaited().end()
	mux := t.live.Load()
	if mux == nil {
		return nil // no Runner is sent over a tunnel that is down
	}
	if err := t.drain(ctx, mux); err != nil {
		return t.explain.wrap(opDrain, err, "nothing to do: connections made now are refused, and Runners try again")
	}
	return nil
}

func (t *Tunnel) drain(ctx context.Context, mux *mux.Session) error {
	stream, err := mux.OpenStream()
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })()
	if err := msg.WriteMsg(stream, &msg.CloseProxy{ProxyName: link.ProxyName(t.cfg.AgentID, t.cfg.Instance)}); err != nil {
		return err
	}
	switch _, err := stream.Read(make([]byte, 1)); { // the end of the stream is the answer
	case errors.Is(err, io.EOF):
		return nil
	case err == nil || ctx.Err() != nil:
		return errSilent
	default:
		return err
	}
}
