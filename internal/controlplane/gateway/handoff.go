package gateway

import (
	"context"
	"errors"
	"net"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// handoff is a listener whose connections are read before it delivers them. Close stops it.
type handoff struct {
	net.Listener

	life   context.Context //nolint:containedctx // of the accepting goroutine
	end    context.CancelFunc
	ready  chan net.Conn
	failed chan error
	ended  chan struct{}
}

func newHandoff(ln net.Listener) *handoff {
	h := &handoff{Listener: ln, ready: make(chan net.Conn), failed: make(chan error), ended: make(chan struct{})}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// start accepts connections. take is as for limit.Accept, and delivers a connection or closes it.
func (h *handoff) start(take func(net.Conn) (work func())) {
	go func() {
		defer close(h.ended)
		_ = limit.Accept(h.life, h.Listener, h.fail, take)
	}()
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.ready:
		return conn, nil
	case err := <-h.failed:
		return nil, err
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that were not delivered are closed.
func (h *handoff) Close() error {
	h.end()
	<-h.ended // limit.Accept has closed the listener, or does so now
	if err := h.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (h *handoff) fail(err error) {
	select {
	case h.failed <- err:
	case <-h.life.Done():
	}
}

// deliver gives a connection to Accept. It waits, so that no more connections are accepted than the
// caller takes.
func (h *handoff) deliver(conn net.Conn) {
	select {
	case h.ready <- conn:
	case <-h.life.Done():
		_ = conn.Close()
	}
}
