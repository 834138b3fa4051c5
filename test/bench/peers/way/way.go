// Package way contains the ways from a Runner to an agent without an inbound port: this product's
// tunnel and its peers, and direct TLS for comparison. Each has a relay, to which Runners and
// agents connect, and an agent. On all of them the Runner's mutual TLS ends in the agent, at the
// same HTTP server, so that they differ only in between.
//
// Peers are configured as documented, with the encryption that they include.
package way

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
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
	// Runners is where Runners connect beside a gateway, which is at Public.
	Runners string
}

// Way is one way. Relay and Agent each run one side of it. They run in separate processes,
// which a signal ends: frp's parts cannot be stopped otherwise.
type Way struct {
	Name  string
	Relay func(ctx context.Context, at Place) // nil for direct
	Agent func(ctx context.Context, at Place)
}

// Ours is the name of this product's way, Direct that of the way without a tunnel.
const (
	Ours   = "pipeops"
	Direct = "direct"
)

// All returns the ways.
func All() []Way {
	return []Way{
		{Direct, nil, directAgent},
		{Ours, oursRelay, oursAgent},
		{"frp", frpRelay, frpAgent},
		{"chisel", chiselRelay, chiselAgent},
	}
}

// Named returns the way of that name.
func Named(name string) Way {
	all := slices.Concat(All(), ToApps(), ToPorts(), ToPackets())
	return all[slices.IndexFunc(all, func(w Way) bool { return w.Name == name })]
}

// together runs the parts of a side, which ends with the first of them.
func together(parts ...func() error) {
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() {
			var err error
			ended <- errors.Join(run.Try(func() { err = part() }), err)
		}()
	}
	run.Check(<-ended)
}

func listen(ctx context.Context, address string) net.Listener {
	return run.Must(new(net.ListenConfig).Listen(ctx, "tcp", address))
}

// split returns the host and port of an address.
func split(address string) (host, port string) {
	host, port, err := net.SplitHostPort(address)
	run.Check(err)
	return host, port
}

// number returns the port of an address.
func number(address string) int {
	_, port := split(address)
	return run.Must(strconv.Atoi(port))
}

// Protocol is that of the Runner's commands, inside its TLS.
type Protocol string

// The protocols.
const (
	HTTP1 Protocol = "http/1.1"
	HTTP2 Protocol = "h2"
)

// The HTTP/2 windows of both ends are those of the Runner's client (runnerapi). The
// product's agent has smaller ones for uploads, which hold its largest body whole: with
// them this would measure the server and not the way to it.
var windows = &http.HTTP2Config{MaxConcurrentStreams: 250, MaxReceiveBufferPerConnection: 64 << 20, MaxReceiveBufferPerStream: 16 << 20}

// serve runs the agent's HTTP server, behind the Runner API's mutual TLS.
func serve(ln net.Listener, dir string) error {
	cert, pool := pair(dir, agent), roots(dir)
	srv := &http.Server{
		Handler: load.Handler(), ReadHeaderTimeout: 10 * time.Second, HTTP2: windows,
		TLSConfig: transport.TLS(transport.TLSConfig{
			Certificate: func() (*tls.Certificate, error) { return &cert, nil },
			Roots:       func() *x509.CertPool { return pool }, TrustDomain: TrustDomain,
		}),
	}
	return srv.ServeTLS(ln, "", "")
}

// serveAt serves on a port of the agent's own machine, for ways that forward to one.
func serveAt(ctx context.Context, address, dir string) error { return serve(listen(ctx, address), dir) }

func directAgent(ctx context.Context, at Place) {
	together(func() error { return serveAt(ctx, at.Tunnel, at.Dir) })
}

// App serves the load without TLS, as an App does.
func App(ctx context.Context, address string) {
	srv := &http.Server{Handler: load.Handler(), ReadHeaderTimeout: 10 * time.Second}
	together(func() error { return srv.Serve(listen(ctx, address)) })
}

// BaseURL is the part before the path in the URLs of a Runner's calls; the client knows where they
// go.
const BaseURL = "http://" + ServerName

// Runner returns a client that calls the agent at an address, with separate connections.
func Runner(dir, address string, p Protocol) *http.Client {
	cert := pair(dir, runner)
	secure := client.TLS(client.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Roots:       roots(dir), TrustDomain: TrustDomain, AgentID: AgentID, ServerName: ServerName,
	})
	secure.NextProtos = []string{string(p)}
	// As the Runner's client does it: to net/http the connection is a plain one.
	t := newTransport(address, (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext)
	t.Protocols.SetHTTP1(p == HTTP1)
	t.Protocols.SetUnencryptedHTTP2(p == HTTP2)
	return &http.Client{Transport: t}
}

// Visitor returns a client that calls a host at an address, with separate connections.
func Visitor(dir, address string, p Protocol) *http.Client {
	t := newTransport(address, dialer.DialContext)
	t.TLSClientConfig = &tls.Config{RootCAs: roots(dir), ServerName: Host, MinVersion: tls.VersionTLS13}
	t.Protocols.SetHTTP1(p == HTTP1)
	t.Protocols.SetHTTP2(p == HTTP2)
	t.HTTP2 = nil
	return &http.Client{Transport: t}
}

var dialer = &net.Dialer{Timeout: 10 * time.Second}

func newTransport(address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, address) },
		Protocols:   new(http.Protocols), MaxIdleConnsPerHost: 1024, DisableCompression: true,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10, HTTP2: windows,
	}
}
