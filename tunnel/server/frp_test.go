package server_test

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	netpkg "github.com/fatedier/frp/pkg/util/net"
	"github.com/fatedier/frp/pkg/util/util"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// attacker speaks FRP as it likes over a connection with its own certificate.
type attacker struct {
	t   *testing.T
	mux *mux.Session
}

func (p *plane) attacker(t *testing.T, id string) *attacker {
	t.Helper()
	conn := dialTLS(t, p.addr, p.ca.Agent(id))
	mux := link.Client(conn, nil, func(*mux.Stream) {}) // it takes streams, and answers none
	t.Cleanup(func() { _ = mux.Close() })
	return &attacker{t: t, mux: mux}
}

func dialTLS(t *testing.T, addr string, cfg *tls.Config) *tls.Conn {
	t.Helper()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn)
}

// say opens a connection with m as its first message.
func (a *attacker) say(m msg.Message) net.Conn {
	a.t.Helper()
	stream, err := a.mux.Open()
	require.NoError(a.t, err)
	require.NoError(a.t, stream.SetDeadline(time.Now().Add(patience)))
	_ = msg.WriteMsg(stream, m) // it may be thrown out before the write returns
	return stream
}

// login logs in properly and returns the control connection.
func (a *attacker) login(id string) *msg.Conn {
	a.t.Helper()
	stream := a.say(&msg.Login{User: id, PoolCount: 5})
	var answer msg.LoginResp
	if err := msg.ReadMsgInto(stream, &answer); err != nil || answer.Error != "" {
		a.t.Fatalf("login: %v %q", err, answer.Error)
	}
	rw, err := netpkg.NewCryptoReadWriter(stream, []byte{})
	require.NoError(a.t, err)
	return msg.NewConn(stream, msg.NewV1ReadWriter(rw))
}

// isThrownOut waits for the end of the connection.
func (a *attacker) isThrownOut() {
	a.t.Helper()
	await.Closed(a.t, a.mux.CloseChan(), "the session's end")
}

// Tries what an agent may not do to another agent or to the control plane, while the other is
// connected.
func TestFRP_RefusesOtherAgents(t *testing.T) {
	p := newPlane(t)
	p.agent("victim")
	client := p.client("victim", http1)
	victimRun := link.RunID("victim", "")
	now := time.Now().Unix()

	first := map[string]msg.Message{
		"log in as another":                 &msg.Login{User: "victim"},
		"log in as nobody":                  &msg.Login{},
		"log in into another's session":     &msg.Login{User: "evil", RunID: victimRun},
		"be another's instance":             &msg.Login{User: "victim", ClientID: "pod-1"},
		"be an instance of no valid name":   &msg.Login{User: "evil", ClientID: "victim\x00"},
		"log in as another instance":        &msg.Login{User: "evil", ClientID: "pod-1", RunID: link.RunID("evil", "pod-2")},
		"drain another":                     &msg.CloseProxy{ProxyName: link.ProxyName("victim", "")},
		"serve another's connections":       &msg.NewWorkConn{RunID: victimRun},
		"serve before logging in":           &msg.NewWorkConn{RunID: link.RunID("evil", "")},
		"visit another without a secret":    &msg.NewVisitorConn{ProxyName: link.ProxyName("victim", ""), Timestamp: now, SignKey: util.GetAuthKey("", now)},
		"visit another with its run ID":     &msg.NewVisitorConn{ProxyName: link.ProxyName("victim", ""), RunID: victimRun, Timestamp: now},
		"start with a message of a session": &msg.NewProxy{ProxyName: link.ProxyName("evil", ""), ProxyType: "stcp"},
	}
	for name, m := range first {
		t.Run(name, func(t *testing.T) {
			a := p.attacker(t, "evil")
			stream := a.say(m)
			if _, ok := m.(*msg.Login); ok {
				_ = stream.Close() // the server waits for that a while
			}
			a.isThrownOut()
			mustAsk(t, client, name)
		})
	}

	inSession := map[string]msg.Message{
		"register another's proxy":        &msg.NewProxy{ProxyName: link.ProxyName("victim", ""), ProxyType: "stcp"},
		"register its own name":           &msg.NewProxy{ProxyName: "evil.more", ProxyType: "stcp"},
		"register a tcp proxy":            &msg.NewProxy{ProxyName: link.ProxyName("evil", ""), ProxyType: "tcp"},
		"register the default type":       &msg.NewProxy{ProxyName: link.ProxyName("evil", "")},
		"register an http proxy":          &msg.NewProxy{ProxyName: link.ProxyName("evil", ""), ProxyType: "http", CustomDomains: []string{"example.test"}},
		"register a udp proxy":            &msg.NewProxy{ProxyName: link.ProxyName("evil", ""), ProxyType: "sudp"},
		"register a peer to peer proxy":   &msg.NewProxy{ProxyName: link.ProxyName("evil", ""), ProxyType: "xtcp"},
		"close another's proxy":           &msg.CloseProxy{ProxyName: link.ProxyName("victim", "")},
		"punch a hole to another":         &msg.NatHoleVisitor{ProxyName: link.ProxyName("victim", "")},
		"log in again inside the session": &msg.Login{User: "victim"},
	}
	for name, m := range inSession {
		t.Run(name, func(t *testing.T) {
			a := p.attacker(t, "evil")
			control := a.login("evil")
			_ = control.WriteMsg(m)
			a.isThrownOut()
			mustAsk(t, client, name)
		})
	}

	t.Run("drain another when logged in", func(t *testing.T) {
		a := p.attacker(t, "evil")
		a.register(a.login("evil"), "evil")
		await.Until(t, "it was told that the agent is up", func() bool { return p.told() == "up victim, up evil" })
		a.say(&msg.CloseProxy{ProxyName: link.ProxyName("victim", "")})
		a.isThrownOut()
		mustAsk(t, client, "not drained")
	})
	t.Run("serve another instance's connections", func(t *testing.T) {
		a := p.attacker(t, "evil")
		a.login("evil")
		a.say(&msg.NewWorkConn{RunID: link.RunID("evil", "pod-1")})
		a.isThrownOut()
	})
	t.Run("log in twice", func(t *testing.T) {
		a := p.attacker(t, "evil")
		a.login("evil")
		a.say(&msg.Login{User: "evil"})
		a.isThrownOut()
	})
	await.Until(t, "the victim alone is online", func() bool { return slices.Equal(p.Agents(), []string{"victim"}) })
	await.Until(t, "that was told", func() bool { return p.told() == "up victim, up evil, down evil" })
}

// register has the agent's own proxy run.
func (a *attacker) register(control *msg.Conn, id string) {
	a.t.Helper()
	err := control.WriteMsg(&msg.NewProxy{ProxyName: link.ProxyName(id, ""), ProxyType: "stcp"})
	for err == nil {
		var m msg.Message
		if m, err = control.ReadMsg(); err == nil {
			if answer, ok := m.(*msg.NewProxyResp); ok && answer.Error == "" {
				return
			}
		}
	}
	a.t.Fatalf("register: %v", err)
}

func TestTunnelCertificate_RefusesStrangers(t *testing.T) {
	p := newPlane(t)
	other := tunneltest.NewCA(t)
	foreign := other.Agent("a1")
	foreign.RootCAs = p.ca.Pool()
	for name, cfg := range map[string]*tls.Config{
		"no certificate":      {RootCAs: p.ca.Pool(), ServerName: tunneltest.ServerName, MinVersion: tls.VersionTLS13},
		"another CA":          foreign,
		"expired":             p.ca.AgentFor("a1", -time.Minute),
		"not an agent's name": withoutURI(p.ca),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialTLS(t, p.addr, cfg)
			_ = conn.SetDeadline(time.Now().Add(patience))
			n, err := conn.Read(make([]byte, 1))
			assert.Error(t, err, "read %d bytes", n)
		})
	}
	await.Until(t, "all are counted", func() bool { return p.Stats().Refused == 4 })
}

func withoutURI(ca *tunneltest.CA) *tls.Config {
	cfg := ca.Server()
	return &tls.Config{
		Certificates: cfg.Certificates, RootCAs: ca.Pool(),
		ServerName: tunneltest.ServerName, MinVersion: tls.VersionTLS13,
	}
}

// Clients around an agent send nothing or garbage, to the listener and inside a session. The
// server does not give them up by itself.
func TestHandshakes_SilentClients(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Handshakes, c.Limits.HandshakeTimeout = 8, 10*patience })
	for i := range 40 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 {
			if _, err := io.WriteString(conn, "\x16\x03\x01garbage"); err != nil {
				t.Log(err) // pushed out already
			}
		}
	}
	evil := p.attacker(t, "evil")
	evil.login("evil")
	for range 50 {
		_, err := evil.mux.Open()
		require.NoError(t, err)
	}
	p.agent("a1")
	mustAsk(t, p.client("a1", http1), "hello")
	assert.LessOrEqual(t, p.Stats().Handshakes, 8)
}

// Garbage comes in place of a stream's first message and in the control connection. Nothing is
// answered, and each ends the session.
func TestFRP_RefusesGarbage(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Streams = 10 })
	p.agent("a1")
	client := p.client("a1", http1)
	for name, garbage := range map[string]string{
		"an unknown type": "x", "a type of frp's second protocol": "FRP\x00\x02\r\n", "a length below zero": "o\xff\xff\xff\xff\xff\xff\xff\xff",
		"a length of gigabytes": "o\x00\x00\x00\x00\x7f\xff\xff\xff{", "no JSON": "o\x00\x00\x00\x00\x00\x00\x00\x01{", "HTTP": "GET / HTTP/1.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			evil := p.attacker(t, "evil")
			stream, err := evil.mux.Open()
			require.NoError(t, err)
			_, err = io.WriteString(stream, garbage)
			require.NoError(t, err)
			n, err := stream.Read(make([]byte, 1))
			assert.Error(t, err, "%q was answered with %d bytes", garbage, n)
			evil.isThrownOut()
		})
	}
	evil := p.attacker(t, "evil")
	control := evil.login("evil")
	_, _ = io.WriteString(control.Conn, strings.Repeat("garbage", 100))
	evil.isThrownOut()
	mustAsk(t, client, "hello")
}

func TestNew_NeedsAuthorizeOrAdmit(t *testing.T) {
	_, err := server.New(server.Config{TLS: tunneltest.NewCA(t).Server(), Identify: tunneltest.Identify})
	assert.ErrorContains(t, err, "Authorize")
}

// A missing CA must not mean the system's.
func TestTunnelCertificate_NeedsCA(t *testing.T) {
	cfg := tunneltest.NewCA(t).Server()
	cfg.ClientCAs = nil
	_, err := server.New(server.Config{TLS: cfg, Identify: tunneltest.Identify})
	assert.Error(t, err, "a configuration without ClientCAs was taken")
	ca := tunneltest.NewCA(t)
	p := startPlane(t, ca, "127.0.0.1:0", func(c *server.Config) {
		chosen := ca.Server()
		chosen.ClientAuth = tls.NoClientCert
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }}
	})
	conn := dialTLS(t, p.addr, &tls.Config{RootCAs: ca.Pool(), ServerName: tunneltest.ServerName, MinVersion: tls.VersionTLS13})
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	p.agent("a1")
}

// What a hostile agent does too much of ends its session, and no other.
func TestFRP_EndsSessionOnExcess(t *testing.T) {
	for name, c := range map[string]struct {
		streams int // limit
		do      func(*attacker)
	}{
		// They would lie in frps's pool with all that was sent on them.
		"work connections that frps did not ask for": {0, func(evil *attacker) { evil.say(&msg.NewWorkConn{RunID: link.RunID("evil", "")}) }},
		"streams, with those that the server has closed": {10, func(evil *attacker) {
			for range 20 {
				_, _ = evil.mux.Open()
			}
		}},
		"drains": {0, func(evil *attacker) {
			for range 20 {
				if stream, err := evil.mux.Open(); err == nil {
					_ = msg.WriteMsg(stream, &msg.CloseProxy{ProxyName: link.ProxyName("evil", "")})
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, func(cfg *server.Config) { cfg.Limits.Streams = c.streams })
			p.agent("a1")
			evil := p.attacker(t, "evil")
			evil.register(evil.login("evil"), "evil")
			c.do(evil)
			evil.isThrownOut()
			mustAsk(t, p.client("a1", http1), "hello")
		})
	}
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
