package tunnel

import (
	"net"
	"sync"
	"time"
)

// offerTimeout is how long a Runner's connection waits to be accepted before it is closed. It
// matters only if no server accepts from the listener.
const offerTimeout = 10 * time.Second

// listener is the net.Listener whose connections come out of the tunnel.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
	addr  addr
}

// addr is the listener's address: there is no port.
type addr string

func (addr) Network() string  { return "frp" }
func (a addr) String() string { return string(a) }

func newListener(agentID string) *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr(agentID)}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "frp", Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.close.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// offer passes conn to Accept. It closes conn if no server accepts it, or if the session that it
// came through is over.
func (l *listener) offer(conn net.Conn, over <-chan struct{}) {
	timeout := time.NewTimer(offerTimeout)
	defer timeout.Stop()
	select {
	case l.conns <- conn:
	case <-l.done:
		_ = conn.Close()
	case <-over:
		_ = conn.Close()
	case <-timeout.C:
		_ = conn.Close()
	}
}
