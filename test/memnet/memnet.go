// Package memnet is a network in memory, for tests in a synctest bubble.
package memnet

import (
	"context"
	"net"
	"sync"
)

// Listener is a listener in memory. In a synctest bubble its connections wait as channels do, so
// that time passes there while all are silent.
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// New returns a listener that Dial connects to.
func New() *Listener { return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects to the listener, and takes any address. It is for http.Transport.DialContext.
func (p *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.dialed <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Listener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
