package server

import (
	"context"
	"errors"
	"io"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// forwarded is a port-forward call: it connects one connection to channels.
type forwarded struct {
	forward runnerapi.Forwarding
	conn    *wire.ChannelConn
	toConn  *io.PipeWriter
}

func (f *forwarded) take(channel byte, p []byte, ended bool) error {
	if channel != wire.ChannelIn {
		return nil
	}
	if ended {
		return f.toConn.Close()
	}
	if _, err := f.toConn.Write(p); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return nil
}

func (f *forwarded) run(ctx context.Context) (int, error) {
	defer func() { _ = f.conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = f.toConn.CloseWithError(context.Cause(ctx)) })()
	return 0, f.forward(ctx, f.conn)
}

func newForwarded(c *wire.Channels, forward runnerapi.Forwarding) *forwarded {
	f := &forwarded{forward: forward}
	f.conn, f.toConn = wire.NewChannelConn(c, wire.ChannelOut, func() error { return nil })
	return f
}
