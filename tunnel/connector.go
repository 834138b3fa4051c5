package tunnel

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// connector gives one frpc instance the streams of one multiplexer session, which exists
// before frpc does: one that carries FRP's control messages, and one for each work connection.
//
// It also keeps frpc's own data races from happening: frpc stops its proxies when the
// control connection ends, while work connections may be on their way to them. So the end
// of the control connection is shown to frpc only when no handover is in progress.
type connector struct {
	mux       *mux.Session
	handovers link.Gate
	open      atomic.Int64  // connections that were handed over
	public    *atomic.Int64 // streams of public traffic that are open
}

var _ client.MessageConnector = (*connector)(nil)

// openControl opens the stream of the control messages.
func (c *connector) openControl() (*controlStream, error) {
	stream, err := c.mux.OpenStream()
	if err != nil {
		return nil, err
	}
	silent := time.AfterFunc(heartbeatTimeout, func() { _ = c.mux.Close() })
	return &controlStream{Stream: link.NewStream(stream, func() { silent.Stop() }), connector: c, silent: silent}, nil
}

// Connect implements client.MessageConnector: a work connection.
func (c *connector) Connect() (*msg.Conn, error) {
	stream, err := c.mux.OpenStream()
	if err != nil {
		return nil, err
	}
	w := &workStream{handovers: &c.handovers, open: &c.open}
	w.Stream = link.NewStream(stream, w.closed)
	return msg.NewConn(w, msg.NewV1ReadWriter(w)), nil
}

// idle reports that nothing goes through the session.
func (c *connector) idle() bool { return c.open.Load() == 0 && c.public.Load() == 0 }

// Close implements client.MessageConnector.
func (c *connector) Close() error { return c.mux.Close() }

// controlStream is FRP's control connection.
type controlStream struct {
	*link.Stream
	connector *connector
	silent    *time.Timer
}

// Read ends the whole session before frpc sees the end of its control connection. That also ends
// the session if the server's FRP was silent for too long.
func (s *controlStream) Read(p []byte) (int, error) {
	s.silent.Reset(heartbeatTimeout)
	n, err := s.Stream.Read(p)
	if err != nil {
		s.silent.Stop()
		_ = s.connector.mux.Close()
		s.connector.handovers.Shut()
	}
	return n, err
}

// workStream is a work connection until frpc hands it over.
type workStream struct {
	*link.Stream
	handovers *link.Gate
	open      *atomic.Int64
	handed    atomic.Bool
	entered   atomic.Bool
	leave     sync.Once
}

// closed is called once, when the connection is closed at this end.
func (s *workStream) closed() {
	if s.handed.Load() {
		s.open.Add(-1)
	}
}

// Read begins the handover with the first byte of the message that starts it.
func (s *workStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 && !s.entered.Load() {
		if !s.handovers.Enter() {
			return 0, net.ErrClosed
		}
		s.entered.Store(true)
	}
	return n, err
}

// Close ends a handover that failed.
func (s *workStream) Close() error {
	err := s.Stream.Close()
	s.left()
	return err
}

func (s *workStream) left() {
	if s.entered.Load() {
		s.leave.Do(s.handovers.Leave)
	}
}

// handedOver ends the handover and returns the bare stream, which knows the peer's address.
func (s *workStream) handedOver(start *msg.StartWorkConn) net.Conn {
	s.open.Add(1)
	s.handed.Store(true)
	s.left()
	if ip := net.ParseIP(start.SrcAddr); ip != nil {
		s.WithRemote(&net.TCPAddr{IP: ip, Port: int(start.SrcPort)})
	} else if start.SrcAddr != "" {
		s.WithRemote(addr(net.JoinHostPort(start.SrcAddr, strconv.Itoa(int(start.SrcPort)))))
	}
	return s.Stream
}

// bareStream takes the layers off that frpc puts around a work connection. They add
// nothing to it: FRP's messages are read to the byte.
func bareStream(conn net.Conn) (*workStream, bool) {
	if c, ok := conn.(*msg.Conn); ok {
		conn = c.Conn
	}
	s, ok := conn.(*workStream)
	return s, ok
}
