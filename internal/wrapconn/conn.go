// Package wrapconn keeps the abilities of a connection that another type embeds.
package wrapconn

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Conn is for embedding. A net.Conn that is embedded by itself hides what its type has beside the
// interface.
type Conn struct {
	net.Conn
}

// CloseWrite ends one direction. A connection that cannot do this is closed.
func (c Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite ends one direction. What cannot do this is closed.
func CloseWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// SetLinger serves to refuse a connection by a reset.
func (c Conn) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}

// SyscallConn implements syscall.Conn, for socket options.
func (c Conn) SyscallConn() (syscall.RawConn, error) {
	if system, ok := c.Conn.(syscall.Conn); ok {
		return system.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// NetConn returns the connection below.
func (c Conn) NetConn() net.Conn { return c.Conn }
