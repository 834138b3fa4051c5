package way

import (
	"context"
	"time"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config/source"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/util/log"
	"github.com/fatedier/frp/server"
	chclient "github.com/jpillora/chisel/client"
	chserver "github.com/jpillora/chisel/server"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const frpUser = "bench"

func frpRelay(ctx context.Context, at Place) {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ServerConfig{}
	host, _ := split(at.Tunnel)
	cfg.BindAddr, cfg.BindPort, cfg.ProxyBindAddr = host, number(at.Tunnel), host
	run.Check(cfg.Complete())
	run.Must(server.NewService(cfg)).Run(ctx)
}

func frpAgent(ctx context.Context, at Place) {
	together(func() error { return serveAt(ctx, at.Local, at.Dir) }, func() error { return frpProxy(ctx, at, frpTCP(at)) })
}

// frpPort is frp's way to an App's port.
func frpPort(ctx context.Context, at Place) {
	together(func() error { return frpProxy(ctx, at, frpTCP(at)) })
}

// frpPackets is frp's way to an App's port of UDP.
func frpPackets(ctx context.Context, at Place) {
	proxy := &v1.UDPProxyConfig{}
	proxy.Name, proxy.Type = frpUser, string(v1.ProxyTypeUDP)
	proxy.LocalIP, _ = split(at.Local)
	proxy.LocalPort, proxy.RemotePort = number(at.Local), number(at.Public)
	proxy.Complete()
	together(func() error { return frpProxy(ctx, at, proxy) })
}

func frpTCP(at Place) v1.ProxyConfigurer {
	proxy := &v1.TCPProxyConfig{}
	proxy.Name, proxy.Type = frpUser, string(v1.ProxyTypeTCP)
	proxy.LocalIP, _ = split(at.Local)
	proxy.LocalPort, proxy.RemotePort = number(at.Local), number(at.Public)
	proxy.Complete()
	return proxy
}

// frpProxy runs the client of a proxy.
func frpProxy(ctx context.Context, at Place, proxy v1.ProxyConfigurer) error {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ClientCommonConfig{User: frpUser, LoginFailExit: new(false)}
	cfg.ServerAddr, _ = split(at.Via)
	cfg.ServerPort = number(at.Via)
	run.Check(cfg.Complete())
	proxies := source.NewConfigSource()
	run.Check(proxies.ReplaceAll([]v1.ProxyConfigurer{proxy}, nil))
	svc := run.Must(client.NewService(client.ServiceOptions{Common: cfg, ConfigSourceAggregator: source.NewAggregator(proxies)}))
	return svc.Run(ctx)
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
