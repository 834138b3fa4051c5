package sni

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/clienthello"
)

const name = "a1.agents.test"

func TestPeek_KeepsBytes(t *testing.T) {
	said := clienthello.Of(t, name)
	got, read, err := Peek(bytes.NewReader(said))
	require.NoError(t, err)
	assert.Equal(t, name, got)
	assert.Equal(t, said, read)

	_, read, err = Peek(bytes.NewReader(said[:len(said)-1]))
	require.Error(t, err)
	assert.Equal(t, said[:len(said)-1], read)
	unnamed := clienthello.Of(t, "127.0.0.1")
	_, read, err = Peek(bytes.NewReader(unnamed))
	require.ErrorIs(t, err, ErrNoName)
	assert.Equal(t, unnamed, read)
}

func TestPeek_LimitsHello(t *testing.T) {
	endless := bytes.Repeat([]byte{0x16, 3, 1, 0x40, 0}, 10_000)
	_, read, err := Peek(bytes.NewReader(endless))
	require.Error(t, err)
	assert.LessOrEqual(t, len(read), maxHello)
}

func TestReplay(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write([]byte("the rest"))
		_ = far.Close()
	}()
	all, err := io.ReadAll(Replay(near, []byte("the beginning and ")))
	require.NoError(t, err)
	assert.Equal(t, "the beginning and the rest", string(all))
}

func FuzzPeek(f *testing.F) {
	f.Add(clienthello.Of(f, name))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		name, read, err := Peek(bytes.NewReader(in))
		if !bytes.HasPrefix(in, read) || len(read) > maxHello || err == nil && name == "" {
			t.Fatalf("name %q, %d bytes", name, len(read))
		}
	})
}
