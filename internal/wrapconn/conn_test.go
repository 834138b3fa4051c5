package wrapconn_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// wrapper embeds a connection as its users do.
type wrapper struct{ wrapconn.Conn }

// sockets returns a wrapped TCP connection and its other end.
func sockets(t *testing.T) (wrapper, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	near, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close() })
	far, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	return wrapper{wrapconn.Conn{Conn: near}}, far
}

func TestConn_CloseWrite(t *testing.T) {
	near, far := sockets(t)
	require.NoError(t, near.CloseWrite())
	_, err := far.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = far.Write([]byte("x"))
	require.NoError(t, err)
	_, err = near.Read(make([]byte, 1))
	require.NoError(t, err, "the other direction is open")
}

func TestConn_Reset(t *testing.T) {
	near, far := sockets(t)
	require.NoError(t, near.SetLinger(0))
	require.NoError(t, near.Close())
	_, err := far.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestConn_SyscallConn(t *testing.T) {
	near, _ := sockets(t)
	var system syscall.Conn = near
	_, err := system.SyscallConn()
	require.NoError(t, err)
	assert.Same(t, near.Conn.Conn, near.NetConn())
}

func TestConn_PipeHasNoExtras(t *testing.T) {
	below, far := net.Pipe()
	near := wrapper{wrapconn.Conn{Conn: below}}
	_, err := near.SyscallConn()
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, near.SetLinger(0))
	require.NoError(t, near.CloseWrite())
	_, err = far.Write([]byte("x"))
	require.Error(t, err, "a connection without directions is closed")
}
