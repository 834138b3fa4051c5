package way

import (
	"context"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config/source"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/util/log"
	"github.com/fatedier/frp/server"

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
