package load

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	// packetSize is that of a datagram: what a game or a call sends.
	packetSize = 200
	// packetBuffer has room for what comes while the reader waits for the processor.
	packetBuffer = 4 << 20
	// packetsAtOnce are sent at each tick of the pace.
	packetsAtOnce = 10
	// packetPatience is how long after the last one datagrams are waited for.
	packetPatience = 2 * time.Second
)

// Echo returns datagrams to where they come from, until the context ends.
func Echo(ctx context.Context, address string) {
	conn := run.Must(new(net.ListenConfig).ListenPacket(ctx, "udp", address)).(*net.UDPConn)
	run.Check(conn.SetReadBuffer(packetBuffer))
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		for buffer := make([]byte, packetSize); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return // the context has ended
			}
			_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
}

// Answers reports whether a datagram to an address comes back at once.
func Answers(ctx context.Context, address string) bool {
	conn := run.Must(new(net.Dialer).DialContext(ctx, "udp", address))
	defer func() { _ = conn.Close() }()
	run.Check(conn.SetDeadline(time.Now().Add(time.Second / 2)))
	_, _ = conn.Write([]byte("x"))
	n, err := conn.Read(make([]byte, packetSize))
	return err == nil && n == 1
}

// Packets sends datagrams at a rate from a new port, and returns how many did not come back.
func Packets(ctx context.Context, address string, perSecond int, during time.Duration) (lost int) {
	conn := run.Must(new(net.Dialer).DialContext(ctx, "udp", address)).(*net.UDPConn)
	defer func() { _ = conn.Close() }()
	run.Check(conn.SetReadBuffer(packetBuffer))
	count := int(during.Seconds() * float64(perSecond))
	var sender sync.WaitGroup
	sender.Go(func() {
		pace := time.NewTicker(packetsAtOnce * time.Second / time.Duration(perSecond))
		defer pace.Stop()
		packet := make([]byte, packetSize)
		for n := range count {
			if n%packetsAtOnce == 0 {
				<-pace.C
			}
			binary.BigEndian.PutUint32(packet, uint32(n)) //nolint:gosec // a number of the run
			_, _ = conn.Write(packet)
		}
	})
	defer sender.Wait()
	run.Check(conn.SetReadDeadline(time.Now().Add(2*during + packetPatience)))
	seen := make([]bool, count)
	got := 0
	for buffer := make([]byte, packetSize); got < count; {
		n, err := conn.Read(buffer)
		if err != nil {
			break // what has not come is lost
		}
		if at := binary.BigEndian.Uint32(buffer); n == packetSize && int(at) < count && !seen[at] {
			seen[at] = true
			got++
		}
	}
	return count - got
}
