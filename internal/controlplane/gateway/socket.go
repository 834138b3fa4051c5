package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// packetsBuffer is what the system is asked to keep of datagrams that were not read yet. It gives
// less where its administrator has set a bound.
const packetsBuffer = 4 << 20

// socket is the socket of a public port of UDP. Of a machine with several addresses, a datagram
// goes back from the one to which the visitor has sent: visitors drop what comes from elsewhere.
type socket struct {
	conn *net.UDPConn
	port uint16
	own  netip.Addr // the only address; the zero value for all of the machine
}

var errNotUDP = errors.New("it is not a socket of UDP")

func newSocket(packets net.PacketConn) (*socket, error) {
	conn, ok := packets.(*net.UDPConn)
	if !ok {
		return nil, errNotUDP
	}
	_, _ = conn.SetReadBuffer(packetsBuffer), conn.SetWriteBuffer(packetsBuffer) // the system's own is enough for little
	local := addrPort(conn.LocalAddr())
	s := &socket{conn: conn, port: local.Port()}
	if !local.Addr().IsUnspecified() {
		s.own = local.Addr()
		return s, nil
	}
	var failed error
	if failed = ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true); local.Addr().Is6() {
		failed = ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst, true)
	}
	if failed != nil {
		return nil, fmt.Errorf("learn to which address datagrams come: %w", failed)
	}
	return s, nil
}

// controlSize is enough for the control messages of a datagram.
const controlSize = 128

// read returns a datagram, where it comes from, and the machine's address that it came to.
func (s *socket) read(buffer []byte) (n int, from netip.AddrPort, at netip.Addr, err error) {
	var control [controlSize]byte
	n, size, _, from, err := s.conn.ReadMsgUDPAddrPort(buffer, control[:])
	if err != nil {
		return 0, netip.AddrPort{}, netip.Addr{}, err
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if s.own.IsValid() {
		return n, from, s.own, nil
	}
	return n, from, destination(control[:size]), nil
}

// destination returns the address in the control messages of a datagram, or the zero value's that
// stands for any.
func destination(control []byte) netip.Addr {
	var of4 ipv4.ControlMessage
	if of4.Parse(control) == nil && of4.Dst != nil {
		if at, ok := netip.AddrFromSlice(of4.Dst); ok {
			return at.Unmap()
		}
	}
	var of6 ipv6.ControlMessage
	if of6.Parse(control) == nil && of6.Dst != nil {
		if at, ok := netip.AddrFromSlice(of6.Dst); ok {
			return at.Unmap()
		}
	}
	return netip.IPv4Unspecified()
}

// write sends a datagram back to where a flow comes from.
func (s *socket) write(packet []byte, to flowKey) {
	var control []byte
	switch {
	case s.own.IsValid() || to.at.IsUnspecified():
	case to.at.Is4():
		control = (&ipv4.ControlMessage{Src: to.at.AsSlice()}).Marshal()
	default:
		control = (&ipv6.ControlMessage{Src: to.at.AsSlice()}).Marshal()
	}
	_, _, _ = s.conn.WriteMsgUDPAddrPort(packet, control, to.from) // a network loses datagrams, too
}
