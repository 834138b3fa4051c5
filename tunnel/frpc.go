package tunnel

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/client/proxy"
	"github.com/fatedier/frp/pkg/config/source"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// FRP's own heartbeat, above the multiplexer's keep-alive: it notices a peer whose connection
// lives while its FRP loop does not.
const (
	// heartbeatInterval is in seconds, as frpc has it.
	heartbeatInterval = 30
	// heartbeatTimeout is the control stream's: frpc's own is a goroutine that looks once a second.
	heartbeatTimeout = 90 * time.Second
)

var (
	errSessionOver = errors.New("the session is over")

	// creating makes frpc instances one after another, process-wide: frp has globals.
	creating sync.Mutex
)

// frpc is one frpc instance that lives for one session.
//
// frp's service reconnects by itself, but cannot be stopped safely while it does: it
// reads its control without a lock from the goroutine that logs in again, and panics or
// leaves a live session behind. So it never gets to log in again here. Its second attempt
// ends up in park, where its goroutine is past the dangerous reads: that stops the service, and
// holds the goroutine until it has stopped; the supervisor then makes a new instance.
type frpc struct {
	service *client.Service
	proxy   string
	first   chan *connector
	cancel  context.CancelFunc // stops the service
	stopped chan struct{}
}

// park is the connector of every login but the first.
type park struct{ *frpc }

func (p park) Open() error {
	p.cancel()
	<-p.stopped
	return errSessionOver
}
func (p park) Connect() (net.Conn, error) { return nil, errSessionOver }
func (p park) Close() error               { return nil }

// login is what the agent says of itself.
type login struct{ agentID, instance, cluster string }

func newFRPC(l login, conn *connector, accept func(net.Conn)) (*frpc, error) {
	proxies, name := source.NewConfigSource(), link.LocalProxyName(l.agentID, l.instance)
	if err := proxies.ReplaceAll([]v1.ProxyConfigurer{agentProxy(name)}, nil); err != nil {
		return nil, err
	}
	f := &frpc{
		proxy:   name,
		first:   make(chan *connector, 1),
		stopped: make(chan struct{}),
	}
	f.first <- conn

	creating.Lock()
	defer creating.Unlock()
	service, err := client.NewService(client.ServiceOptions{
		Common:                 commonConfig(l),
		ConfigSourceAggregator: source.NewAggregator(proxies),
		ConnectorCreator: func(context.Context, *v1.ClientCommonConfig) client.Connector {
			select {
			case c := <-f.first:
				return c
			default:
				return park{f}
			}
		},
		HandleWorkConnCb: func(_ *v1.ProxyBaseConfig, conn net.Conn, start *msg.StartWorkConn) bool {
			if stream, ok := bareStream(conn); ok {
				conn = stream.handedOver(start)
			}
			accept(conn)
			return false
		},
	})
	f.service = service
	return f, err
}

// run blocks until the session is over and frpc has stopped; the end of ctx alone does
// not stop it. The error is that of the login, or nil if there was a session.
func (f *frpc) run(ctx context.Context) error {
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer f.cancel()
	defer close(f.stopped)
	return f.service.Run(ctx)
}

// phase is frpc's word for how the agent's proxy is, and its error if it was refused.
func (f *frpc) phase() (phase, problem string) {
	status, ok := f.service.StatusExporter().GetProxyStatus(f.proxy)
	if !ok {
		return proxy.ProxyPhaseNew, ""
	}
	return status.Phase, status.Err
}

func commonConfig(l login) *v1.ClientCommonConfig {
	exit, off := true, false
	cfg := &v1.ClientCommonConfig{User: l.agentID, ClientID: l.instance, LoginFailExit: &exit}
	if l.cluster != "" {
		cfg.Metadatas = map[string]string{link.MetaCluster: l.cluster}
	}
	cfg.Transport.WireProtocol = "v1"
	cfg.Transport.TCPMux = &off // the connector's session is the multiplexer
	cfg.Transport.TLS.Enable = &off
	cfg.Transport.HeartbeatInterval = heartbeatInterval
	cfg.Transport.HeartbeatTimeout = -1 // none of its own
	return cfg
}

// agentProxy is the one proxy. The server sets its secret; encryption and compression stay
// off because the callback is given the connection without them.
func agentProxy(name string) v1.ProxyConfigurer {
	p := &v1.STCPProxyConfig{}
	p.Name = name
	p.Type = string(v1.ProxyTypeSTCP)
	return p
}
