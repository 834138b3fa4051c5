package way

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
)

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
const (
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

// serve returns the agent's HTTP server, behind the Runner API's mutual TLS.
func serve(ctx context.Context, ln net.Listener, dir string) error {
	cert, err := pair(dir, agent)
	if err != nil {
		return err
	}
	pool, err := roots(dir)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: load.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: nil,
		TLSConfig: transport.TLS(transport.TLSConfig{
			Certificate: func() (*tls.Certificate, error) { return cert, nil },
			Roots:       func() *x509.CertPool { return pool }, TrustDomain: TrustDomain,
		}),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveLocal returns serve on the agent's own port, for ways that forward to one.
func serveLocal(ctx context.Context, at Place) error {
	ln, err := listen(ctx, at.Local)
	if err != nil {
		return err
	}
	return serve(ctx, ln, at.Dir)
}

// Runner returns a client that calls the agent at an address, with connections of its own.
func Runner(dir, address string, p Protocol) (*http.Client, error) {
	cert, err := pair(dir, runner)
	if err != nil {
		return nil, err
	}
	pool, err := roots(dir)
	if err != nil {
		return nil, err
	}
	secure := client.TLS(client.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return cert, nil },
		Roots:       pool, TrustDomain: TrustDomain, AgentID: AgentID, ServerName: ServerName,
	})
	secure.NextProtos = []string{string(p)}
	transport := &http.Transport{
		// As the Runner's client does it: to net/http the connection is a plain one.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return (&tls.Dialer{Config: secure}).DialContext(ctx, network, address)
		},
		Protocols: new(http.Protocols), MaxIdleConnsPerHost: 1024, DisableCompression: true,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow},
	}
	switch p {
	case HTTP1:
		transport.Protocols.SetHTTP1(true)
	case HTTP2:
		transport.Protocols.SetUnencryptedHTTP2(true)
	default:
		return nil, fmt.Errorf("%s: no such protocol", p)
	}
	return &http.Client{Transport: transport}, nil
}

// BaseURL is the part before the path in the URLs of a Runner's calls; the client knows where they
// go.
const BaseURL = "http://" + ServerName

func directAgent(ctx context.Context, at Place) error {
	ln, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	return serve(ctx, ln, at.Dir)
}
