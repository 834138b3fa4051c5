package gatewaywire

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

const (
	// MaxPacket is the largest payload of a datagram in bytes.
	MaxPacket = 1<<16 - 1
	// lengthSize is how many bytes say how long a datagram is.
	lengthSize = 2
	// packetsAhead is how much of a stream is read ahead, so that a datagram takes one call of the
	// tunnel.
	packetsAhead = 4 << 10
)

// packetBuffers have datagrams as a stream has them.
var packetBuffers = sync.Pool{New: func() any { return new([lengthSize + MaxPacket]byte) }}

// Packets returns a stream as a connection of datagrams: each Read returns one, and each Write
// sends one. In the stream, the length is before each of them in two bytes, as in DNS over TCP (RFC
// 1035, section 4.2.2).
func Packets(stream net.Conn) net.Conn {
	return &packets{wrapconn.Conn{Conn: stream}, bufio.NewReaderSize(stream, packetsAhead)}
}

type packets struct {
	wrapconn.Conn
	ahead *bufio.Reader
}

// Await implements waiter.
func (p *packets) Await() error {
	_, err := p.ahead.Peek(1)
	return err
}

// Read implements io.Reader. A buffer that is too small for a datagram is an error.
func (p *packets) Read(b []byte) (int, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(p.ahead, length[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > len(b) {
		return 0, io.ErrShortBuffer
	}
	if _, err := io.ReadFull(p.ahead, b[:n]); err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// Write implements io.Writer.
func (p *packets) Write(b []byte) (int, error) {
	if len(b) > MaxPacket {
		return 0, io.ErrShortWrite
	}
	buffer := packetBuffers.Get().(*[lengthSize + MaxPacket]byte)
	defer packetBuffers.Put(buffer)
	binary.BigEndian.PutUint16(buffer[:], uint16(len(b))) //nolint:gosec // bounded above
	n := copy(buffer[lengthSize:], b)
	_, err := p.Conn.Write(buffer[:lengthSize+n])
	return n, err
}
