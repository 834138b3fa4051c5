package way

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
)

// konnectivityRelay runs the proxy server with a socket of HTTP CONNECT, and in place of the API
// server, which would dial through it, a listener.
func konnectivityRelay(ctx context.Context, at Place) {
	o := serveroptions.NewProxyRunOptions()
	o.Mode, o.UdsName, o.ServerPort = server.ModeHTTPConnect, filepath.Join(at.Dir, "konnectivity.sock"), 0
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
