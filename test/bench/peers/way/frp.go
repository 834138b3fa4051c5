package way

import (
	"context"
	"strconv"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config/source"
	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/fatedier/frp/pkg/util/log"
	"github.com/fatedier/frp/server"
	"golang.org/x/sync/errgroup"
)

const frpUser = "bench"

// serveFRP runs frps, with what change sets beside its addresses.
func serveFRP(ctx context.Context, at Place, change func(*v1.ServerConfig)) error {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ServerConfig{}
	host, port := split(at.Tunnel)
	cfg.BindAddr, cfg.BindPort, cfg.ProxyBindAddr = host, number(port), host
	if change != nil {
		change(cfg)
	}
	if err := cfg.Complete(); err != nil {
		return err
	}
	svc, err := server.NewService(cfg)
	if err != nil {
		return err
	}
	svc.Run(ctx)
	return nil
}

// dialFRP runs frpc with one proxy.
func dialFRP(ctx context.Context, at Place, proxy v1.ProxyConfigurer) error {
	log.InitLogger("console", "error", 1, true)
	stay := false
	cfg := &v1.ClientCommonConfig{User: frpUser, LoginFailExit: &stay}
	host, port := split(at.Via)
	cfg.ServerAddr, cfg.ServerPort = host, number(port)
	if err := cfg.Complete(); err != nil {
		return err
	}
	proxy.Complete()
	proxies := source.NewConfigSource()
	if err := proxies.ReplaceAll([]v1.ProxyConfigurer{proxy}, nil); err != nil {
		return err
	}
	svc, err := client.NewService(client.ServiceOptions{Common: cfg, ConfigSourceAggregator: source.NewAggregator(proxies)})
	if err != nil {
		return err
	}
	return svc.Run(ctx)
}

func frpRelay(ctx context.Context, at Place) error { return serveFRP(ctx, at, nil) }

func frpAgent(ctx context.Context, at Place) error {
	p := &v1.TCPProxyConfig{}
	p.Name, p.Type = frpUser, string(v1.ProxyTypeTCP)
	host, port := split(at.Local)
	p.LocalIP, p.LocalPort = host, number(port)
	_, port = split(at.Public)
	p.RemotePort = number(port)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	group.Go(func() error { return dialFRP(ctx, at, p) })
	return group.Wait()
}

// number returns a port of ours.
func number(port string) int {
	n, err := strconv.Atoi(port)
	if err != nil {
		panic("bench: bad port " + port)
	}
	return n
}
