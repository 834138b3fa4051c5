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

func frpRelay(ctx context.Context, at Place) error {
	log.InitLogger("console", "error", 1, true)
	cfg := &v1.ServerConfig{}
	host, port := split(at.Tunnel)
	cfg.BindAddr, cfg.BindPort, cfg.ProxyBindAddr = host, number(port), host
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

func frpAgent(ctx context.Context, at Place) error {
	log.InitLogger("console", "error", 1, true)
	stay := false
	cfg := &v1.ClientCommonConfig{User: frpUser, LoginFailExit: &stay}
	host, port := split(at.Via)
	cfg.ServerAddr, cfg.ServerPort = host, number(port)
	if err := cfg.Complete(); err != nil {
		return err
	}
	p := &v1.TCPProxyConfig{}
	p.Name, p.Type = frpUser, string(v1.ProxyTypeTCP)
	p.LocalIP, port = split(at.Local)
	p.LocalPort = number(port)
	_, port = split(at.Public)
	p.RemotePort = number(port)
	p.Complete()
	proxies := source.NewConfigSource()
	if err := proxies.ReplaceAll([]v1.ProxyConfigurer{p}, nil); err != nil {
		return err
	}
	svc, err := client.NewService(client.ServiceOptions{Common: cfg, ConfigSourceAggregator: source.NewAggregator(proxies)})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	group.Go(func() error { return svc.Run(ctx) })
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
