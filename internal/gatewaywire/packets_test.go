package gatewaywire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestPackets_RoundTrip(t *testing.T) {
	near, far := net.Pipe()
	sent := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), gatewaywire.MaxPacket), []byte("last")}
	await.Background(t, "the sender", func(context.Context) error {
		stream := gatewaywire.Packets(near)
		for _, p := range sent {
			if _, err := stream.Write(p); err != nil {
				return err
			}
		}
		_, err := stream.Write(make([]byte, gatewaywire.MaxPacket+1))
		assert.ErrorIs(t, err, io.ErrShortWrite)
		return near.Close()
	})
	stream, buffer := gatewaywire.Packets(far), make([]byte, gatewaywire.MaxPacket)
	for _, p := range sent {
		n, err := stream.Read(buffer)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(p, buffer[:n]), "%d bytes", len(p))
	}
	_, err := stream.Read(buffer)
	require.ErrorIs(t, err, io.EOF)
}

// FuzzPackets reads what a hostile end of the tunnel may send.
func FuzzPackets(f *testing.F) {
	f.Add([]byte("\x00\x03one\x00\x00\x00\x01x"))
	f.Add([]byte("\xff\xffshort"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		stream := gatewaywire.Packets(&source{Reader: bytes.NewReader(text)})
		var again bytes.Buffer
		back := gatewaywire.Packets(&source{Writer: &again})
		for buffer := make([]byte, gatewaywire.MaxPacket); ; {
			n, err := stream.Read(buffer)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				break
			}
			if _, err := back.Write(buffer[:n]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(text, again.Bytes()) {
			t.Fatalf("%q became %q", text, again.Bytes())
		}
	})
}

// source is a stream in memory.
type source struct {
	net.Conn
	io.Reader
	io.Writer
}

func (s *source) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *source) Write(p []byte) (int, error) { return s.Writer.Write(p) }

// TestRelay_Packets: datagrams stay apart on their way, an empty one too, and one end's end is the
// other's.
func TestRelay_Packets(t *testing.T) {
	visitor, near := net.Pipe()
	far, app := net.Pipe()
	over := make(chan struct{})
	await.Background(t, "the relay", func(ctx context.Context) error {
		defer close(over)
		gatewaywire.Relay(ctx, gatewaywire.Packets(near), gatewaywire.Packets(far), time.Minute, nil, nil)
		return nil
	})
	from, to, buffer := gatewaywire.Packets(visitor), gatewaywire.Packets(app), make([]byte, gatewaywire.MaxPacket)
	for _, text := range []string{"one", "", "three"} {
		_, err := from.Write([]byte(text))
		require.NoError(t, err)
		n, err := to.Read(buffer)
		require.NoError(t, err)
		assert.Equal(t, text, string(buffer[:n]))
	}
	require.NoError(t, app.Close())
	<-over
	_, err := from.Read(buffer)
	require.Error(t, err)
}
