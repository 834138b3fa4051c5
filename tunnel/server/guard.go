package server

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// errForeign is the root of everything an agent may not say.
var errForeign = errors.New("message refused")

// guard stands between an agent's control connection and frps. It lets through only what
// this one agent has business saying, so that nothing in frps needs to be trusted to
// tell agents apart.
type guard struct {
	msg.ReadWriter
	agentID string
	// onUp is called when the agent has been told that its proxy runs; the message is
	// then ahead of any request for a work connection.
	onUp func()
	// onEnd is called with the reason when no more can be read.
	onEnd func(error)
}

// ReadMsg implements msg.ReadWriter.
func (g *guard) ReadMsg() (msg.Message, error) {
	m, err := g.ReadWriter.ReadMsg()
	if err == nil {
		m, err = admitControl(g.agentID, m)
	}
	if err != nil {
		g.onEnd(err)
		return nil, err
	}
	return m, nil
}

// WriteMsg implements msg.ReadWriter.
func (g *guard) WriteMsg(m msg.Message) error {
	if err := g.ReadWriter.WriteMsg(m); err != nil {
		return err
	}
	if answer, ok := m.(*msg.NewProxyResp); ok && answer.Error == "" {
		g.onUp()
	}
	return nil
}

// admitControl checks a message of a running session and returns what frps may see of it.
func admitControl(agentID string, m msg.Message) (msg.Message, error) {
	switch m := m.(type) {
	case *msg.Ping:
		return &msg.Ping{}, nil
	case *msg.NewProxy:
		return admitProxy(agentID, m)
	case *msg.CloseProxy:
		return nil, fmt.Errorf("%w: the agent closed its proxy", errForeign)
	default:
		return nil, fmt.Errorf("%w: a session does not take %T", errForeign, m)
	}
}

// admitProxy allows the agent's own stcp proxy and nothing else of what was asked: no
// ports, domains, groups, limits or users. The secret is fresh and told to nobody, because
// connections are made through frps' proxy object, never by a visitor.
func admitProxy(agentID string, m *msg.NewProxy) (msg.Message, error) {
	if m.ProxyType != "stcp" {
		return nil, fmt.Errorf("%w: a proxy of type %q", errForeign, m.ProxyType)
	}
	if m.ProxyName != link.ProxyName(agentID) {
		return nil, fmt.Errorf("%w: a proxy named %q", errForeign, m.ProxyName)
	}
	return &msg.NewProxy{ProxyName: m.ProxyName, ProxyType: m.ProxyType, Sk: rand.Text()}, nil
}

// admitLogin checks the message that begins a session.
func admitLogin(agentID string, m *msg.Login) error {
	if m.User != agentID {
		return fmt.Errorf("%w: a login as %q", errForeign, m.User)
	}
	if m.RunID != "" && m.RunID != link.RunID(agentID) {
		return fmt.Errorf("%w: a login with a foreign run ID", errForeign)
	}
	return nil
}

// admitWorkConn checks the message that begins a work connection.
func admitWorkConn(agentID string, m *msg.NewWorkConn) error {
	if m.RunID != link.RunID(agentID) {
		return fmt.Errorf("%w: a work connection with a foreign run ID", errForeign)
	}
	return nil
}
