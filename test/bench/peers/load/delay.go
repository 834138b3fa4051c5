package load

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// delayRead is how much is read from a connection at a time.
	delayRead = 256 << 10
	// delayBuffer is how much may be in flight in each direction of a connection. At 20 ms one way
	// it is reached at 12 GB/s, so the line limits no sender.
	delayBuffer = 256 << 20
)

// Delay is a line that forwards TCP and delays every byte. It does not limit the bandwidth: data in
// flight is in memory.
type Delay struct {
	// OneWay is the delay in each direction, half a round trip.
	OneWay time.Duration
	// Target is the address to which the line leads, host:port.
	Target string
}

// Serve forwards the listener's connections until ctx ends, then closes everything.
func (d Delay) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		near, err := ln.Accept()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if err != nil {
			return err
		}
		all.Go(func() { d.forward(ctx, near) })
	}
}

func (d Delay) forward(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", d.Target)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { d.copy(far, near) })
	d.copy(near, far)
	both.Wait()
}

// packet is data in flight, and its time of arrival.
type packet struct {
	bytes []byte
	due   time.Time
	whole *[delayRead]byte // for reuse; nil for a small packet's own
}

var delayBuffers = sync.Pool{New: func() any { return new([delayRead]byte) }}

// newPacket holds what was read; little data does not occupy a large buffer.
func newPacket(buffer *[delayRead]byte, n int, due time.Time) packet {
	if n > delayRead/4 {
		return packet{buffer[:n], due, buffer}
	}
	p := packet{bytes: append([]byte(nil), buffer[:n]...), due: due}
	delayBuffers.Put(buffer)
	return p
}

// copy copies bytes in one direction, and at their end the end.
func (d Delay) copy(dst, src net.Conn) {
	line := make(chan packet, delayBuffer/delayRead)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(line)
		for {
			buffer := delayBuffers.Get().(*[delayRead]byte)
			n, err := src.Read(buffer[:])
			line <- newPacket(buffer, n, time.Now().Add(d.OneWay))
			if err != nil {
				return
			}
		}
	})
	err := deliver(dst, line)
	if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		_, _ = dst.Close(), src.Close() // both ends are gone: there is nothing more to read
	}
	for range line { // data in flight is lost
	}
	reading.Wait()
}

func deliver(dst io.Writer, line <-chan packet) error {
	for p := range line {
		time.Sleep(time.Until(p.due))
		if _, err := dst.Write(p.bytes); err != nil {
			return err
		}
		if p.whole != nil {
			delayBuffers.Put(p.whole)
		}
	}
	return nil
}
