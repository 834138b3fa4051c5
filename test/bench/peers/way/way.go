// Package way contains the ways from a Runner to an agent without an inbound port: this product's
// tunnel and its peers, and direct TLS for comparison. Each has a relay, to which Runners and
// agents connect, and an agent. On all of them the Runner's mutual TLS ends in the agent, at the
// same HTTP server, so that they differ only in between.
//
// Peers are configured as documented, with the encryption that they include.
package way

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
)

// Place is where the parts of one way are. The processes receive it as an argument: the secrets are
// in the directory.
type Place struct {
	// Dir holds the certificates (NewCertificates) and all other files.
	Dir string
	// Public is where Runners connect.
	Public string
	// Tunnel is where the relay waits for agents, and Via where agents find it: the same address,
	// or a line that leads there.
	Tunnel, Via string
	// Local is a port of the agent's own machine, for ways that forward to one.
	Local string
	// Spare are two otherwise unused ports for each side.
	RelaySpare, AgentSpare [2]string
}

// Way is one way. Relay and Agent each run one side of it until ctx ends. They run in processes of
// their own, which a signal ends: frp's and konnectivity's parts cannot be stopped otherwise.
type Way struct {
	Name string
	// Note describes it in one line.
	Note  string
	Relay func(ctx context.Context, at Place) error // nil for direct
	Agent func(ctx context.Context, at Place) error
}

// Ours is the name of this product's way, Direct that of the way without a tunnel.
const (
	Ours   = "pipeops"
	Direct = "direct"
)

// All returns the ways, those with bounds first.
func All() []Way {
	return []Way{
		{Direct, "direct TLS to the agent, as if it had an inbound port", nil, directAgent},
		{Ours, "edge, frps and frpc of this product", oursRelay, oursAgent},
		{"frp", "stock frp v0.71.0: a tcp proxy over TLS", frpRelay, frpAgent},
		{"chisel", "chisel v1.11.3: a reverse port over SSH in a websocket", chiselRelay, chiselAgent},
		{"remotedialer", "rancher/remotedialer v0.6.1: a websocket over TLS", remotedialerRelay, remotedialerAgent},
		{"konnectivity", "apiserver-network-proxy v0.34.0: gRPC over TLS, HTTP CONNECT at the front", konnectivityRelay, konnectivityAgent},
		{"yamux", "hashicorp/yamux v0.1.1 over TLS, 6 MiB windows, no more", yamuxRelay, yamuxAgent},
		{"reverse-h2", "HTTP/2 whose client is the relay, 6 MiB windows: a stream per connection", reverseRelay, reverseAgent},
	}
}

// Named returns the way of that name.
func Named(name string) (Way, error) {
	all := append(All(), ToApps()...)
	i := slices.IndexFunc(all, func(w Way) bool { return w.Name == name })
	if i < 0 {
		return Way{}, errors.New(name + ": there is no such way")
	}
	return all[i], nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// acceptAll handles each connection in a goroutine until ctx ends, and waits for them.
func acceptAll(ctx context.Context, ln net.Listener, take func(net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if err != nil {
			return err
		}
		all.Go(func() { take(conn) })
	}
}

// relayTo listens for connections of Runners and forwards each to a connection that dial opens.
func relayTo(ctx context.Context, address string, dial func(context.Context) (net.Conn, error)) error {
	ln, err := listen(ctx, address)
	if err != nil {
		return err
	}
	return acceptAll(ctx, ln, func(runner net.Conn) {
		far, err := dial(ctx)
		if err != nil {
			_ = runner.Close()
			return
		}
		join(runner, far)
	})
}

// join copies in both directions until either ends, then closes both.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(a, b)
		_, _ = a.Close(), b.Close()
	})
	_, _ = io.Copy(b, a)
	_, _ = a.Close(), b.Close()
	both.Wait()
}

// split returns the host and port of a valid address.
func split(address string) (string, string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic("bench: bad address " + address)
	}
	return host, port
}
