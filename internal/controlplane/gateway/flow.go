package gateway

import (
	"bytes"
	"net"
	"sync/atomic"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// flow is the visitor's end of a flow: what comes from one address and port, and what goes back to
// it. Each Read returns a datagram, and each Write sends one.
type flow struct {
	of       *flows
	key      flowKey
	answered atomic.Bool // the App has sent something

	due     wake.Signal // there is something to read, or the flow has ended
	packets [][]byte    // that wait; of.mu guards these
	size    int         // of them, in bytes
	ended   bool
}

func newFlow(of *flows, key flowKey) *flow { return &flow{of: of, key: key, due: wake.New()} }

// queue has a datagram wait for Read, or reports that there is no room. The caller holds of.mu.
func (f *flow) queue(packet []byte) bool {
	cost := packetCost + len(packet)
	if len(f.packets) == maxWaiting || f.size+cost > maxQueue || f.of.queued+cost > maxQueued {
		return false
	}
	f.packets = append(f.packets, bytes.Clone(packet))
	f.size, f.of.queued = f.size+cost, f.of.queued+cost
	f.due.Raise()
	return true
}

// Await waits until there is a datagram, as gatewaywire.Relay wants.
func (f *flow) Await() error {
	for {
		f.of.mu.Lock()
		waiting, ended := len(f.packets) > 0, f.ended
		f.of.mu.Unlock()
		switch {
		case ended:
			return net.ErrClosed
		case waiting:
			return nil
		}
		<-f.due
	}
}

// Read implements io.Reader, after Await.
func (f *flow) Read(p []byte) (int, error) {
	if err := f.Await(); err != nil {
		return 0, err
	}
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if len(f.packets) == 0 { // it was closed meanwhile
		return 0, net.ErrClosed
	}
	packet := f.packets[0]
	f.packets[0] = nil
	f.packets = f.packets[1:]
	f.settle(packetCost + len(packet))
	return copy(p, packet), nil
}

// settle forgets datagrams that wait no more. The caller holds of.mu.
func (f *flow) settle(bytes int) { f.size, f.of.queued = f.size-bytes, f.of.queued-bytes }

// Write implements io.Writer. A datagram that the visitor's network does not take is lost.
func (f *flow) Write(p []byte) (int, error) {
	f.answered.Store(true)
	f.of.socket.write(p, f.key)
	return len(p), nil
}

// Close ends the flow. The next datagram from its address begins another one.
func (f *flow) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.settle(f.size)
		f.packets = nil
		delete(f.of.open, f.key)
		f.due.Raise()
	}
	return nil
}
