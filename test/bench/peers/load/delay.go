package load

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	// delayRead is how much is read from a connection at a time.
	delayRead = 256 << 10
	// delayBuffer is how much may be in flight in each direction of a connection. At 20 ms one way
	// it is reached at 12 GB/s, so the line limits no sender.
	delayBuffer = 256 << 20
)

// Delay forwards a listener's connections to an address, and delays every byte: half a round trip.
// It does not limit the bandwidth: data in flight is in memory.
func Delay(ctx context.Context, ln net.Listener, target string, oneWay time.Duration) {
	for {
		near := run.Must(ln.Accept())
		go func() {
			far, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", target)
			if err != nil {
				_ = near.Close()
				return
			}
			go delayed(far, near, oneWay)
			delayed(near, far, oneWay)
		}()
	}
}

// packet is data in flight, and its time of arrival.
type packet struct {
	bytes []byte
	due   time.Time
	whole *[delayRead]byte // for reuse; nil for a small packet's own
}

var buffers = sync.Pool{New: func() any { return new([delayRead]byte) }}

// newPacket holds what was read; little data does not occupy a large buffer.
func newPacket(buffer *[delayRead]byte, n int, due time.Time) packet {
	if n > delayRead/4 {
		return packet{buffer[:n], due, buffer}
	}
	p := packet{bytes: append([]byte(nil), buffer[:n]...), due: due}
	buffers.Put(buffer)
	return p
}

// delayed copies bytes in one direction, and at their end the end.
func delayed(dst, src net.Conn, oneWay time.Duration) {
	line := make(chan packet, delayBuffer/delayRead)
	go func() {
		defer close(line)
		for {
			buffer := buffers.Get().(*[delayRead]byte)
			n, err := src.Read(buffer[:])
			line <- newPacket(buffer, n, time.Now().Add(oneWay))
			if err != nil {
				return
			}
		}
	}()
	if deliver(dst, line) != nil || dst.(*net.TCPConn).CloseWrite() != nil {
		_, _ = dst.Close(), src.Close() // both ends are gone: there is nothing more to read
	}
	for range line { // data in flight is lost
	}
}

func deliver(dst io.Writer, line <-chan packet) error {
	for p := range line {
		time.Sleep(time.Until(p.due))
		if _, err := dst.Write(p.bytes); err != nil {
			return err
		}
		if p.whole != nil {
			buffers.Put(p.whole)
		}
	}
	return nil
}
