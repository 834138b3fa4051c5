package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// Refresh makes the agent at the other end of conn request its news from the control plane. It
// returns once the agent has done so, and closes conn.
func Refresh(ctx context.Context, conn net.Conn, c TLSConfig) error {
	defer func() { _ = conn.Close() }()
	config := TLS(c)
	config.NextProtos = []string{wire.RefreshProtocol}
	client := tls.Client(conn, config)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("refresh request: %w", err)
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(client, answer); err != nil {
		return fmt.Errorf("refresh request: the agent did not carry it out: %w", errors.Join(ctx.Err(), err))
	}
	if answer[0] != wire.RefreshDone {
		return fmt.Errorf("refresh request: the agent answered %d", answer[0])
	}
	return nil
}
