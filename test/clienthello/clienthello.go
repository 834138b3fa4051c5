// Package clienthello makes ClientHellos of TLS for tests.
package clienthello

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of returns what a client sends first that connects to the server of a name.
func Of(tb testing.TB, name string) []byte {
	tb.Helper()
	r := &recorder{}
	err := tls.Client(r, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name}).HandshakeContext(tb.Context())
	require.ErrorIs(tb, err, io.EOF)
	return r.said.Bytes()
}

// recorder keeps what a client sends first, and answers nothing.
type recorder struct {
	net.Conn // nil: no other method is called
	said     bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.said.Write(p) }
func (*recorder) Read([]byte) (int, error)      { return 0, io.EOF }
func (*recorder) Close() error                  { return nil }
