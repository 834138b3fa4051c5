package gateway

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// flowBuffer is what the system is asked to keep of an App's datagrams that were not read yet: some
// half a second's worth of 5 000 small ones a second. It gives less where its administrator has set
// a bound.
const flowBuffer = 1 << 20

// flow is the App's end of a flow of datagrams. It has a source port of its own.
type flow struct{ *net.UDPConn }

// dialFlow returns the App's end of a new flow. It ends when the App's machine reports that nothing
// listens, so that the next datagram may find another pod.
func dialFlow(ctx context.Context, address string) (net.Conn, error) {
	conn, err := dial(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetReadBuffer(flowBuffer) // the system's own is enough for little
	return flow{udp}, nil
}

// Await waits for a datagram without a buffer for it, as gatewaywire.Relay wants.
func (f flow) Await() error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return awaitReadable(raw)
}

// Write implements io.Writer. A datagram that is larger than the way to the App allows is lost.
func (f flow) Write(p []byte) (int, error) {
	n, err := f.UDPConn.Write(p)
	if errors.Is(err, syscall.EMSGSIZE) {
		return len(p), nil
	}
	return n, err
}
