// Package sni reads which server a TLS connection is for, before it is decided who serves it. It
// has no certificate and answers nothing.
package sni

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// maxHello bounds a ClientHello: with large post-quantum key shares and many
// tickets it has a few KiB.
const maxHello = 16 << 10

var errPeeked = errors.New("peeked")

// ErrNoName means that a ClientHello names no server.
var ErrNoName = errors.New("the ClientHello names no server")

// Peek reads a ClientHello and returns the server name in it, and what was read, also with an
// error. It leaves the parsing to crypto/tls, which gives up as soon as the name is known and can
// answer nothing. The name is as the client sent it. The caller bounds the time.
func Peek(conn io.Reader) (name string, read []byte, err error) {
	var buf bytes.Buffer
	in := io.TeeReader(io.LimitReader(conn, maxHello), &buf)
	err = tls.Server(readOnly{in}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errPeeked
		},
	}).Handshake() //nolint:noctx // the connection's deadline bounds it
	switch {
	case !errors.Is(err, errPeeked):
		return "", buf.Bytes(), err
	case name == "":
		return "", buf.Bytes(), ErrNoName
	}
	return name, buf.Bytes(), nil
}

// readOnly is as much of a connection as Peek needs.
type readOnly struct{ r io.Reader }

func (c readOnly) Read(p []byte) (int, error)     { return c.r.Read(p) }
func (readOnly) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return nil }
func (readOnly) RemoteAddr() net.Addr             { return nil }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }

// Replay returns a connection that begins with what was read of it.
func Replay(conn net.Conn, read []byte) net.Conn {
	return &replayed{wrapconn.Conn{Conn: conn}, read}
}

// replayed is a connection of which the beginning was read already.
type replayed struct {
	wrapconn.Conn
	head []byte
}

// Read implements io.Reader.
func (c *replayed) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
