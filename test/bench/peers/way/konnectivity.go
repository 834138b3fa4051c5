package way

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
)

// konnectivityRelay returns the proxy server with a socket of HTTP CONNECT, and in place of the API
// server, which would dial through it, a listener.
func konnectivityRelay(ctx context.Context, at Place) error {
	o := serveroptions.NewProxyRunOptions()
	o.Mode, o.UdsName, o.ServerPort = server.ModeHTTPConnect, filepath.Join(at.Dir, "konnectivity.sock"), 0
	host, port := split(at.Tunnel)
	o.AgentBindAddress, o.AgentPort = host, number(port)
	o.ClusterCert, o.ClusterKey, o.ClusterCaCert = certFile(at.Dir, relay), keyFile(at.Dir, relay), caFile(at.Dir)
	_, port = split(at.RelaySpare[0])
	o.AdminPort, o.AdminBindAddress = number(port), host
	_, port = split(at.RelaySpare[1])
	o.HealthPort, o.HealthBindAddress = number(port), host
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return (&serverapp.Proxy{}).Run(o, ctx.Done()) })
	group.Go(func() error {
		return relayTo(ctx, at.Public, func(ctx context.Context) (net.Conn, error) {
			return connectThrough(ctx, o.UdsName, at.Local)
		})
	})
	return group.Wait()
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

func konnectivityAgent(ctx context.Context, at Place) error {
	o := agentoptions.NewGrpcProxyAgentOptions()
	host, port := split(at.Via)
	o.ProxyServerHost, o.ProxyServerPort = host, number(port)
	o.AgentCert, o.AgentKey, o.CaCert = certFile(at.Dir, agent), keyFile(at.Dir, agent), caFile(at.Dir)
	o.AgentID = AgentID
	_, port = split(at.AgentSpare[0])
	o.AdminServerPort, o.AdminBindAddress = number(port), host
	_, port = split(at.AgentSpare[1])
	o.HealthServerPort, o.HealthServerHost = number(port), host
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	group.Go(func() error { return (&agentapp.Agent{}).Run(o, ctx.Done(), ctx.Done()) })
	return group.Wait()
}
