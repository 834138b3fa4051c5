package server_test

import (
	"net"
	"testing"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// What an agent that has a certificate, and is a traitor, can do to the control plane.

// They would lie in frps's pool with all that was sent on them.
func TestFRP_RefusesUnaskedWorkConnections(t *testing.T) {
	p := newPlane(t)
	p.agent("a1")
	evil := p.attacker(t, "evil")
	evil.register(evil.login("evil"), "evil")
	evil.say(&msg.NewWorkConn{RunID: link.RunID("evil", "")})
	evil.isThrownOut()
	mustAsk(t, p.client("a1", http1), "hello")
}

// Streams that the server has closed count too.
func TestFRP_LimitsStreams(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Streams = 10 })
	evil := p.attacker(t, "evil")
	evil.register(evil.login("evil"), "evil")
	for range 20 {
		if _, err := evil.mux.Open(); err != nil {
			break
		}
	}
	evil.isThrownOut()
}

func TestFRP_LimitsDrains(t *testing.T) {
	p := newPlane(t)
	evil := p.attacker(t, "evil")
	evil.register(evil.login("evil"), "evil")
	for range 20 {
		stream, err := evil.mux.Open()
		if err != nil {
			break
		}
		_ = msg.WriteMsg(stream, &msg.CloseProxy{ProxyName: link.ProxyName("evil", "")})
	}
	evil.isThrownOut()
}

// The limit is per agent, so that one agent's certificate does not give access to the memory of
// all: others log in meanwhile, and so does this one afterwards.
func TestLogins_Limited(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Logins = 3 })
	certificate := p.ca.Agent("evil")
	var idle []net.Conn
	for range 10 {
		idle = append(idle, dialTLS(t, p.addr, certificate))
	}
	await.Until(t, "all but three are closed", func() bool { return p.Stats().Refused == 7 && p.Stats().Sessions == 3 })
	p.agent("a1")
	mustAsk(t, p.client("a1", http1), "hello")
	for _, conn := range idle {
		_ = conn.Close()
	}
	for range 5 { // those that are through count no more
		await.Until(t, "there is room", func() bool { return p.Stats().Sessions < 4 })
		evil := p.attacker(t, "evil")
		evil.register(evil.login("evil"), "evil")
	}
}
