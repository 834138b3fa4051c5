package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/auth"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/msg"
	netpkg "github.com/fatedier/frp/pkg/util/net"
	"github.com/fatedier/frp/pkg/util/version"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

var (
	errSessionOver = errors.New("the session is over")
	errNoAnswer    = fmt.Errorf("no answer within %s", loginTimeout)
)

// frpc is frp's client for one session: its control, which keeps the proxy and makes the work
// connections. frp's service around it is left out, as frps' is at the other end: it keeps
// configurations that can be changed and logs in again by itself, in its own goroutines, and
// cannot be stopped safely while it does. Here a session ends with its connection, and the
// supervisor makes the next.
type frpc struct {
	control  *client.Control
	messages *messages
}

// login is what the agent states about itself.
type login struct{ agentID, instance, cluster string }

// common is frpc's configuration for all sessions: nothing in it belongs to one agent, and frpc
// does not change it.
var common = sync.OnceValues(func() (*commonParts, error) {
	off := false
	cfg := &v1.ClientCommonConfig{}
	cfg.Transport.WireProtocol = "v1"
	cfg.Transport.TCPMux = &off // the connector's session is the multiplexer
	cfg.Transport.TLS.Enable = &off
	cfg.Transport.HeartbeatInterval, cfg.Transport.HeartbeatTimeout = -1, -1 // messages has its own
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	hostname, _ := os.Hostname() // for frps' log
	made, err := auth.BuildClientAuth(&cfg.Auth)
	return &commonParts{cfg, made, hostname}, err
})

type commonParts struct {
	cfg      *v1.ClientCommonConfig
	auth     *auth.ClientAuth
	hostname string
}

// logIn begins FRP's session. It blocks until the server has answered, or conn's session is over.
func logIn(l login, conn *connector, accept func(net.Conn)) (f *frpc, err error) {
	c, err := common()
	if err != nil {
		return nil, fmt.Errorf("frpc's configuration: %w", err)
	}
	stream, err := conn.openControl()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = stream.Close()
		}
	}()
	answer, err := c.ask(stream, l)
	if err != nil {
		return nil, err
	}
	rw, err := netpkg.NewCryptoReadWriter(stream, c.auth.EncryptionKey())
	if err != nil {
		return nil, err
	}
	messages := newMessages(msg.NewV1ReadWriter(rw))
	control, err := client.NewControl(context.Background(), &client.SessionContext{
		Common: c.cfg, RunID: answer.RunID, Conn: msg.NewConn(stream, messages), Auth: c.auth, Connector: conn,
	})
	if err != nil {
		return nil, err
	}
	control.SetInWorkConnCallback(func(_ *v1.ProxyBaseConfig, conn net.Conn, start *msg.StartWorkConn) bool {
		if stream, ok := bareStream(conn); ok {
			conn = stream.handedOver(start)
		}
		accept(conn)
		return false
	})
	control.Run([]v1.ProxyConfigurer{agentProxy(l)}, nil)
	messages.begin()
	return &frpc{control, messages}, nil
}

// ask sends FRP's login.
func (c *commonParts) ask(stream *controlStream, l login) (*msg.LoginResp, error) {
	asked := &msg.Login{
		Version: version.Full(), Hostname: c.hostname, Os: runtime.GOOS, Arch: runtime.GOARCH,
		User: l.agentID, ClientID: l.instance, Timestamp: time.Now().Unix(),
	}
	if l.cluster != "" {
		asked.Metas = map[string]string{link.MetaCluster: l.cluster}
	}
	if err := c.auth.Setter.SetLogin(asked); err != nil {
		return nil, err
	}
	_ = stream.SetReadDeadline(time.Now().Add(loginTimeout))
	defer func() { _ = stream.SetReadDeadline(time.Time{}) }()
	answer := &msg.LoginResp{}
	err := msg.WriteMsg(stream, asked)
	if err == nil {
		err = msg.ReadMsgInto(stream, answer)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errNoAnswer
	case err != nil:
		return nil, err
	case answer.Error != "":
		return nil, errors.New(answer.Error)
	}
	return answer, nil
}

// agentProxy returns the one proxy, by its name on the wire: frpc gets no user name to put before
// it. The server sets its secret. Encryption and compression stay off because the callback receives
// the connection without them.
func agentProxy(l login) v1.ProxyConfigurer {
	p := &v1.STCPProxyConfig{}
	p.Name = link.ProxyName(l.agentID, l.instance)
	p.Type = string(v1.ProxyTypeSTCP)
	p.Complete()
	return p
}
