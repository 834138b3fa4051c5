package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
)

// listenPublic opens the gateway's ports.
func listenPublic(ctx context.Context, c *Config) (https, http net.Listener, http3 net.PacketConn, err error) {
	cfg := c.Gateway
	https, http3, err = listenHTTPS(ctx, cfg.HTTPSListen, !cfg.NoHTTP3, listenUDP)
	if err != nil {
		return nil, nil, nil, err
	}
	https = c.public(listenerHTTPS, https)
	if cfg.HTTPListen == "" {
		return https, nil, http3, nil
	}
	if http, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HTTPListen); err != nil {
		return https, nil, http3, fmt.Errorf("--gateway-http: %w; free the port or choose another with --gateway-http", err)
	}
	return https, c.public(listenerHTTP, http), http3, nil
}

// listenPort opens a public port that an App has, at the address of HTTPS.
func (c *Config) listenPort(ctx context.Context, port int) (net.Listener, error) {
	address, err := c.portAddress(port)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return c.public(listenerPort, ln), nil
}

// listenFlows is listenPort for UDP.
func (c *Config) listenFlows(ctx context.Context, port int) (net.PacketConn, error) {
	address, err := c.portAddress(port)
	if err != nil {
		return nil, err
	}
	return listenUDP(ctx, address)
}

func (c *Config) portAddress(port int) (string, error) {
	host, _, err := net.SplitHostPort(c.Gateway.HTTPSListen)
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// public gives a public port its limits, and has it read the headers of load balancers.
func (c *Config) public(name string, ln net.Listener) net.Listener {
	if len(c.Gateway.ProxyProtocol) > 0 {
		ln = gateway.ListenProxy(ln, c.Gateway.ProxyProtocol, c.Log)
	}
	return c.limited(name, ln)
}

func listenUDP(ctx context.Context, address string) (net.PacketConn, error) {
	return (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
}

// anyPortAttempts is how many ports are tried that the system chooses. It chooses one for TCP, and
// its number may be taken for UDP.
const anyPortAttempts = 20

// listenHTTPS opens the port for HTTPS, and that for HTTP/3 with the same number.
func listenHTTPS(
	ctx context.Context, address string, http3 bool, packets func(context.Context, string) (net.PacketConn, error),
) (ln net.Listener, udp net.PacketConn, err error) {
	_, chosen, _ := net.SplitHostPort(address)
	for attempt := 1; ; attempt++ {
		if ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
			return nil, nil, fmt.Errorf("--gateway-https: %w; free the port or choose another with --gateway-https", err)
		}
		if !http3 {
			return ln, nil, nil
		}
		if udp, err = packets(ctx, ln.Addr().String()); err == nil {
			return ln, udp, nil
		}
		_ = ln.Close()
		if chosen != "0" || !errors.Is(err, syscall.EADDRINUSE) || attempt == anyPortAttempts {
			return nil, nil, fmt.Errorf("--gateway-https: %w; free the UDP port, or leave HTTP/3 out with --gateway-http3=false", err)
		}
	}
}
