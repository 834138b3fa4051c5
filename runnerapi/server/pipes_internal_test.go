package server

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener in memory. In a synctest bubble its connections wait as channels do, so that
// time passes there while all are silent.
type Pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipes returns a listener that Dial connects to.
func NewPipes() *Pipes { return &Pipes{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects to the listener, whatever the address. It is for http.Transport.DialContext.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
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
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (*Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
