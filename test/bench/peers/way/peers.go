package way

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config/source"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/util/log"
	"github.com/fatedier/frp/server"
	chclient "github.com/jpillora/chisel/client"
	chserver "github.com/jpillora/chisel/server"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
	proxyserver "sigs.k8s.io/apiserver-network-proxy/pkg/server"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const frpUser = "bench"

// serveFRP runs frps, with a vhost at a port if that is not 0.
func serveFRP(ctx context.Context, at Place, vhost int) {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ServerConfig{}
	host, _ := split(at.Tunnel)
	cfg.BindAddr, cfg.BindPort, cfg.ProxyBindAddr, cfg.VhostHTTPSPort = host, number(at.Tunnel), host, vhost
	run.Check(cfg.Complete())
	run.Must(server.NewService(cfg)).Run(ctx)
}

// dialFRP runs frpc with one proxy.
func dialFRP(ctx context.Context, at Place, proxy v1.ProxyConfigurer) error {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ClientCommonConfig{User: frpUser, LoginFailExit: new(false)}
	cfg.ServerAddr, _ = split(at.Via)
	cfg.ServerPort = number(at.Via)
	run.Check(cfg.Complete())
	proxy.Complete()
	proxies := source.NewConfigSource()
	run.Check(proxies.ReplaceAll([]v1.ProxyConfigurer{proxy}, nil))
	svc := run.Must(client.NewService(client.ServiceOptions{Common: cfg, ConfigSourceAggregator: source.NewAggregator(proxies)}))
	return svc.Run(ctx)
}

func frpRelay(ctx context.Context, at Place) { serveFRP(ctx, at, 0) }

func frpAgent(ctx context.Context, at Place) {
	p := &v1.TCPProxyConfig{}
	p.Name, p.Type = frpUser, string(v1.ProxyTypeTCP)
	p.LocalIP, _ = split(at.Local)
	p.LocalPort, p.RemotePort = number(at.Local), number(at.Public)
	together(func() error { return serveAt(ctx, at.Local, at.Dir) }, func() error { return dialFRP(ctx, at, p) })
}

func frpVhostRelay(ctx context.Context, at Place) { serveFRP(ctx, at, number(at.Public)) }

func frpVhostAgent(ctx context.Context, at Place) {
	p := &v1.HTTPSProxyConfig{}
	p.Name, p.Type, p.CustomDomains = frpUser, string(v1.ProxyTypeHTTPS), []string{Host}
	p.Plugin = v1.TypedClientPluginOptions{Type: v1.PluginHTTPS2HTTP, ClientPluginOptions: &v1.HTTPS2HTTPPluginOptions{
		Type: v1.PluginHTTPS2HTTP, LocalAddr: at.Local, CrtPath: certFile(at.Dir, relay), KeyPath: keyFile(at.Dir, relay),
	}}
	run.Check(dialFRP(ctx, at, p))
}

const chiselAuth = "bench:bench"

func chiselRelay(ctx context.Context, at Place) {
	srv := run.Must(chserver.NewServer(&chserver.Config{Auth: chiselAuth, Reverse: true, KeepAlive: 25 * time.Second}))
	host, port := split(at.Tunnel)
	run.Check(srv.StartContext(ctx, host, port))
	run.Check(srv.Wait())
}

func chiselAgent(ctx context.Context, at Place) {
	c := run.Must(chclient.NewClient(&chclient.Config{
		Server: "http://" + at.Via, Auth: chiselAuth, KeepAlive: 25 * time.Second, MaxRetryCount: -1,
		Remotes: []string{"R:" + at.Public + ":" + at.Local},
	}))
	run.Check(c.Start(ctx))
	together(c.Wait, func() error { return serveAt(ctx, at.Local, at.Dir) })
}

// konnectivityRelay runs the proxy server with a socket of HTTP CONNECT, and in place of the API
// server, which would dial through it, a listener.
func konnectivityRelay(ctx context.Context, at Place) {
	o := serveroptions.NewProxyRunOptions()
	o.Mode, o.UdsName, o.ServerPort = proxyserver.ModeHTTPConnect, filepath.Join(at.Dir, "konnectivity.sock"), 0
	host, _ := split(at.Tunnel)
	o.AgentBindAddress, o.AdminBindAddress, o.HealthBindAddress = host, host, host
	o.AgentPort, o.AdminPort, o.HealthPort = number(at.Tunnel), number(at.RelaySpare[0]), number(at.RelaySpare[1])
	o.ClusterCert, o.ClusterKey, o.ClusterCaCert = certFile(at.Dir, relay), keyFile(at.Dir, relay), caFile(at.Dir)
	together(
		func() error { return (&serverapp.Proxy{}).Run(o, ctx.Done()) },
		func() error {
			return relayTo(ctx, at.Public, func() (net.Conn, error) { return connectThrough(ctx, o.UdsName, at.Local) })
		},
	)
}

func connectThrough(ctx context.Context, socket, target string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = resp.Body.Close() // CONNECT's has none
	if resp.StatusCode != http.StatusOK || reader.Buffered() > 0 {
		return nil, errors.Join(fmt.Errorf("CONNECT: %s", resp.Status), conn.Close())
	}
	return conn, nil
}

func konnectivityAgent(ctx context.Context, at Place) {
	o := agentoptions.NewGrpcProxyAgentOptions()
	host, _ := split(at.Via)
	o.ProxyServerHost, o.AdminBindAddress, o.HealthServerHost = host, host, host
	o.ProxyServerPort, o.AdminServerPort, o.HealthServerPort = number(at.Via), number(at.AgentSpare[0]), number(at.AgentSpare[1])
	o.AgentCert, o.AgentKey, o.CaCert = certFile(at.Dir, agent), keyFile(at.Dir, agent), caFile(at.Dir)
	o.AgentID = AgentID
	together(
		func() error { return serveAt(ctx, at.Local, at.Dir) },
		func() error { return (&agentapp.Agent{}).Run(o, ctx.Done(), ctx.Done()) },
	)
}
