package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/net/proxy"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

const (
	// connectTimeout bounds everything from name resolution to the TLS handshake. A control plane
	// to which thousands return makes each wait for its turn. A later retry costs both ends more
	// than waiting.
	connectTimeout = 45 * time.Second
	// reachTimeout bounds what comes before the handshake.
	reachTimeout = 20 * time.Second
	// maxProxyAnswer bounds the header of a proxy's answer.
	maxProxyAnswer = 16 << 10
)

// connectTCP makes the authenticated connection to the tunnel's own port.
func (t *Tunnel) connectTCP(ctx context.Context) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg, made, err := t.tlsConfig(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := t.reach(ctx)
	if err != nil {
		return nil, err
	}
	socket := link.NewSocket(raw)
	conn := tls.Client(socket, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return &line{Conn: conn, below: socket, transport: TCP, made: made}, nil
}

func (t *Tunnel) reach(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return t.dial(ctx, t.cfg.ServerAddress)
}

// tlsConfig returns the TLS configuration for the tunnel's port, and the one that its source
// returned.
func (t *Tunnel) tlsConfig(ctx context.Context) (cfg, made *tls.Config, err error) {
	made, err = t.source(TCP)(ctx)
	if err != nil {
		return nil, nil, t.explain.wrap("get the certificate to connect to", err, "check the agent's identity; it is tried again by itself")
	}
	cfg = made.Clone()
	cfg.ServerName = t.cfg.ServerName
	cfg.MinVersion = tls.VersionTLS13
	cfg.DynamicRecordSizingDisabled = true // writes are batched, so small records only cost
	if !slices.Contains(cfg.NextProtos, ALPN) {
		cfg.NextProtos = append([]string{ALPN}, cfg.NextProtos...)
	}
	return cfg, made, nil
}

// dial reaches an address directly or through the proxy that the configuration chooses.
func (t *Tunnel) dial(ctx context.Context, address string) (net.Conn, error) {
	var via *url.URL
	if t.cfg.Proxy != nil {
		var err error
		if via, err = t.cfg.Proxy(&url.URL{Scheme: "https", Host: address}); err != nil {
			return nil, t.explain.wrap(opProxy, err, actProxy)
		}
	}
	if via == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	conn, err := dialVia(ctx, via, address)
	if err != nil {
		return nil, t.explain.wrap(opProxy, fmt.Errorf("%s: %w", via.Redacted(), err), actProxy)
	}
	return conn, nil
}

func dialVia(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	switch via.Scheme {
	case "socks5", "socks5h":
		return dialSOCKS(ctx, via, address)
	case "http", "https":
	default:
		return nil, fmt.Errorf("proxies of the kind %q are not supported, only http, https and socks5", via.Scheme)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", hostPort(via))
	if err != nil {
		return nil, err
	}
	// The exchange with the proxy must end with ctx, regardless of the proxy's behaviour.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnelled, err := httpConnect(ctx, conn, via, address)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tunnelled, nil
}

func dialSOCKS(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	dialer, err := proxy.FromURL(via, new(net.Dialer))
	if err != nil {
		return nil, err
	}
	contextual, ok := dialer.(proxy.ContextDialer)
	if !ok {
		return nil, errors.New("this kind of proxy cannot be dialled with a timeout")
	}
	return contextual.DialContext(ctx, "tcp", address)
}

// httpConnect asks the proxy at the other end of conn for a tunnel.
func httpConnect(ctx context.Context, conn net.Conn, via *url.URL, address string) (net.Conn, error) {
	if via.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	req.Header.Set("User-Agent", "pipeops-agent")
	if user := via.User; user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxProxyAnswer))
	answer, err := http.ReadResponse(reader, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy answered %s", answer.Status)
	}
	// The server does not send before the agent's ClientHello.
	if reader.Buffered() > 0 {
		return nil, errors.New("the proxy sent more than its answer")
	}
	return conn, nil
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	port := "80"
	if u.Scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
