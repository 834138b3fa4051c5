// Package way holds the ways from a Runner to an agent that has no inbound port: this
// product's tunnel and its peers, and direct TLS to compare them with. Each has a relay,
// which Runners and agents connect to, and an agent; on all of them the Runner's mutual TLS
// ends in the agent, at the same HTTP server, so that only what is between differs.
//
// Peers are set up as their documentation says, with the encryption that they come with.
package way

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
)

// Place is where the parts of one way are. It is handed to the processes as an argument:
// the secrets are in the directory.
type Place struct {
	// Dir holds the certificates (NewCertificates) and whatever else is needed.
	Dir string
	// Public is where Runners connect.
	Public string
	// Tunnel is where the relay waits for agents, and Via where agents find it: the same
	// or a line that leads there.
	Tunnel, Via string
	// Local is a port of the agent's own machine, for those who forward to one.
	Local string
	// Spare are two ports that nobody else has, for each side.
	RelaySpare, AgentSpare [2]string
}

// Way is one way. Relay and Agent run one side of it until ctx ends; they are called in
// processes of their own, which are ended by a signal: frp's and konnectivity's parts
// cannot be ended otherwise.
type Way struct {
	Name string
	// Note says in a line what it is.
	Note  string
	Relay func(ctx context.Context, at Place) error // nil for direct
	Agent func(ctx context.Context, at Place) error
}

// Ours is the name of this product's way, Direct of that without a tunnel.
const (
	Ours   = "pipeops"
	Direct = "direct"
)

// All are the ways, the ones that bounds are about first.
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

// Named is the way of that name.
func Named(name string) (Way, error) {
	all := All()
	i := slices.IndexFunc(all, func(w Way) bool { return w.Name == name })
	if i < 0 {
		return Way{}, errors.New(name + ": there is no such way")
	}
	return all[i], nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// acceptAll gives each connection to a goroutine until ctx ends, and joins them.
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

// relayTo is a listener at which the connections of Runners come, each of which goes on
// to what dial opens.
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

// join copies both ways until either ends, then closes both.
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

// split is host and port, of an address that we made ourselves.
func split(address string) (string, string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic("bench: bad address " + address)
	}
	return host, port
}
