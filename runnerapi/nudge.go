package runnerapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// nudgeProtocol is the ALPN protocol by which the control plane makes an agent request its news at
// once. The handshake is the message, and one byte is the answer.
const nudgeProtocol = "pipeops-nudge/1"

const (
	// nudgeTimeout bounds how long an agent takes for a refresh request.
	nudgeTimeout = 15 * time.Second
	nudgeDone    = 1
)

// nudgeVerifier admits the control plane, for refresh requests only.
func (c *ServerTLSConfig) nudgeVerifier(hello *tls.ClientHelloInfo) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if refusal := c.judgeNudge(state); refusal != nil {
			return c.turnAway(refusal)
		}
		d, ok := hello.Conn.(*door)
		if !ok {
			return errors.New("nobody is here to be nudged") // not served by Serve
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.nudge = c.Nudge
		return nil
	}
}

func (c *ServerTLSConfig) judgeNudge(state tls.ConnectionState) *Refusal {
	leaf := state.PeerCertificates[0]
	if _, err := c.verify(state.PeerCertificates); err != nil {
		return refuse(leaf, "", RefusedUnknown, "a nudge's certificate is not one that the agent trusts: %v", err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != ControlPlaneURI(c.TrustDomain).String() {
		return refuse(leaf, "", RefusedUnknown, "a nudge is the control plane's to send, and its certificate is not")
	}
	return nil
}

// serveNudge is a handler for http.Server.TLSNextProto.
func serveNudge(_ *http.Server, conn *tls.Conn, h http.Handler) {
	d, ok := conn.NetConn().(*door)
	if !ok {
		return
	}
	d.mu.Lock()
	nudge := d.nudge
	d.mu.Unlock()
	if nudge == nil {
		return
	}
	ctx := context.Background()
	if based, ok := h.(interface{ BaseContext() context.Context }); ok { // how net/http provides it
		ctx = based.BaseContext()
	}
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(nudgeTimeout))
	if nudge(ctx) == nil {
		_, _ = conn.Write([]byte{nudgeDone}) // the control plane is gone if this fails
	}
}

// Nudge makes the agent at the other end of conn request its news from the control plane. It
// returns once the agent has done so, and closes conn.
func Nudge(ctx context.Context, conn net.Conn, c ClientTLSConfig) error {
	defer func() { _ = conn.Close() }()
	config := ClientTLS(c)
	config.NextProtos = []string{nudgeProtocol}
	client := tls.Client(conn, config)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("nudge: %w", err)
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(client, answer); err != nil {
		return fmt.Errorf("nudge: the agent did not do it: %w", errors.Join(ctx.Err(), err))
	}
	if answer[0] != nudgeDone {
		return fmt.Errorf("nudge: the agent answered %d", answer[0])
	}
	return nil
}
