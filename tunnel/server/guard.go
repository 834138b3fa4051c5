package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// errForeign is the root of all errors about messages that an agent may not send.
var errForeign = errors.New("message refused")

var errSilent = errors.New("the agent's FRP client sends nothing any longer")

// replica is the peer of a session: the agent that the certificate names, and the instance that it
// states. All FRP identifiers are derived from the two, so an agent can only ever be one of its own
// instances.
type replica struct{ agentID, instance string }

func (r replica) runID() string     { return link.RunID(r.agentID, r.instance) }
func (r replica) proxyName() string { return link.ProxyName(r.agentID, r.instance) }

// guard stands between an agent's control connection and frps. It passes only what this one agent
// may send, so that frps need not distinguish agents.
type guard struct {
	msg.ReadWriter
	replica replica
	// onUp is called when the agent has been informed that its proxy runs; that message is then
	// ahead of any request for a work connection.
	onUp func()
	// onAsk is called before the agent is asked for a work connection.
	onAsk func()
	// onEnd is called with the reason if no more can be read, or if nothing has arrived for too
	// long.
	onEnd func(error)

	silent *time.Timer // of the reading side
}

// ReadMsg implements msg.ReadWriter.
func (g *guard) ReadMsg() (msg.Message, error) {
	g.hear()
	m, err := g.ReadWriter.ReadMsg()
	if err == nil {
		m, err = admitControl(g.replica, m)
	}
	if err != nil {
		g.silent.Stop()
		g.onEnd(err)
		return nil, err
	}
	return m, nil
}

// hear restarts the timeout for the agent's next message. The multiplexer has its own sign of life;
// this one is for an agent whose connection lives while its FRP does not.
func (g *guard) hear() {
	if g.silent == nil {
		g.silent = time.AfterFunc(heartbeatTimeout, func() { g.onEnd(errSilent) })
		return
	}
	g.silent.Reset(heartbeatTimeout)
}

// WriteMsg implements msg.ReadWriter.
func (g *guard) WriteMsg(m msg.Message) error {
	if _, ok := m.(*msg.ReqWorkConn); ok {
		g.onAsk()
	}
	if err := g.ReadWriter.WriteMsg(m); err != nil {
		return err
	}
	if answer, ok := m.(*msg.NewProxyResp); ok && answer.Error == "" {
		g.onUp()
	}
	return nil
}

// admitControl checks a message of a running session and returns what frps may see of it.
func admitControl(r replica, m msg.Message) (msg.Message, error) {
	switch m := m.(type) {
	case *msg.Ping:
		return &msg.Ping{}, nil
	case *msg.NewProxy:
		return admitProxy(r, m)
	case *msg.CloseProxy:
		return nil, fmt.Errorf("%w: the agent closed its proxy", errForeign)
	default:
		return nil, fmt.Errorf("%w: a session does not take %T", errForeign, m)
	}
}

// admitProxy allows only the agent's own stcp proxy, and ignores everything else that was asked
// for: no ports, domains, groups, limits or users. The secret is random and sent to no peer,
// because connections are made through frps' proxy object, never by a visitor.
func admitProxy(r replica, m *msg.NewProxy) (msg.Message, error) {
	if m.ProxyType != "stcp" {
		return nil, fmt.Errorf("%w: a proxy of type %q", errForeign, m.ProxyType)
	}
	if m.ProxyName != r.proxyName() {
		return nil, fmt.Errorf("%w: a proxy named %q", errForeign, m.ProxyName)
	}
	return &msg.NewProxy{ProxyName: m.ProxyName, ProxyType: m.ProxyType, Sk: rand.Text()}, nil
}

// admitLogin checks the message that begins a session. The instance is the agent's own statement;
// the agent may only ask for its own run ID.
func admitLogin(r replica, m *msg.Login) error {
	if m.User != r.agentID {
		return fmt.Errorf("%w: a login as %q", errForeign, m.User)
	}
	if !link.ValidInstance(r.instance) {
		return fmt.Errorf("%w: a login as instance %q", errForeign, r.instance)
	}
	if m.RunID != "" && m.RunID != r.runID() {
		return fmt.Errorf("%w: a login with a foreign run ID", errForeign)
	}
	return nil
}

// admitWorkConn checks the message that begins a work connection.
func admitWorkConn(r replica, m *msg.NewWorkConn) error {
	if m.RunID != r.runID() {
		return fmt.Errorf("%w: a work connection with a foreign run ID", errForeign)
	}
	return nil
}
