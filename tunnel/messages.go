package tunnel

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fatedier/frp/pkg/msg"
)

// FRP's own heartbeat, above the multiplexer's keep-alive: it notices a peer whose connection
// lives while its FRP loop does not.
const (
	heartbeatInterval = 30 * time.Second
	// heartbeatTimeout is the control stream's: frpc's own is a goroutine that looks once a second.
	heartbeatTimeout = 90 * time.Second
)

// messages is the control connection as frpc reads and writes it. It derives the proxy's state from
// what is read, which frpc does not report by itself. It also sends the heartbeats: frpc uses a
// goroutine for them, where a timer is enough.
type messages struct {
	msg.ReadWriter
	running chan struct{} // closed when frpc has its proxy
	proxied chan error    // takes how the proxy's registration went
	answer  *msg.NewProxyResp

	writing sync.Mutex // frpc's goroutine for it, and the heartbeat
	beat    *time.Timer
	over    bool
}

func newMessages(rw msg.ReadWriter) *messages {
	return &messages{ReadWriter: rw, running: make(chan struct{}), proxied: make(chan error, 1)}
}

// begin lets frpc read, and sends heartbeats until reading has failed. The end of the connection
// must not be shown to frpc before it has its proxy, which would then be kept for good.
func (m *messages) begin() {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.beat = time.AfterFunc(nextHeartbeat(), m.heartbeat)
	close(m.running)
}

// nextHeartbeat returns a time up to a tenth later than required, so that thousands of agents that
// connected at once do not stay synchronized.
func nextHeartbeat() time.Duration {
	return heartbeatInterval + rand.N(heartbeatInterval/10) //nolint:gosec // spreading load needs no secrecy
}

func (m *messages) heartbeat() {
	m.writing.Lock()
	defer m.writing.Unlock()
	if !m.over {
		_ = m.ReadWriter.WriteMsg(&msg.Ping{}) // the reader notices it
		m.beat.Reset(nextHeartbeat())
	}
}

// ReadMsg implements msg.ReadWriter.
func (m *messages) ReadMsg() (msg.Message, error) {
	<-m.running
	m.tell()
	got, err := m.ReadWriter.ReadMsg()
	if err != nil {
		m.end()
		return nil, err
	}
	m.answer, _ = got.(*msg.NewProxyResp)
	return got, nil
}

// tell is called after frpc has handled a message.
func (m *messages) tell() {
	if m.answer == nil {
		return
	}
	var err error
	if m.answer.Error != "" {
		err = errors.New(m.answer.Error)
	}
	m.answer = nil
	select {
	case m.proxied <- err:
	default: // it was reported before
	}
}

// WriteMsg implements msg.ReadWriter.
func (m *messages) WriteMsg(said msg.Message) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.ReadWriter.WriteMsg(said)
}

func (m *messages) end() {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.over = true
	m.beat.Stop()
}
