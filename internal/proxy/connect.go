package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	socks "golang.org/x/net/proxy"
)

// maxAnswer bounds the header of a proxy's answer.
const maxAnswer = 16 << 10

// dialHTTP makes a tunnel through an HTTP proxy (RFC 9110, section 9.3.6).
func dialHTTP(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", hostPort(via))
	if err != nil {
		return nil, err
	}
	// The exchange with the proxy must end with ctx, regardless of the proxy's behaviour.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnelled, err := connect(ctx, conn, via, address)
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
	dialer, err := socks.FromURL(via, new(net.Dialer))
	if err != nil {
		return nil, err
	}
	contextual, ok := dialer.(socks.ContextDialer)
	if !ok {
		return nil, errors.New("this kind of proxy cannot be dialled with a timeout")
	}
	return contextual.DialContext(ctx, "tcp", address)
}

// connect asks the proxy at the other end of conn for a tunnel.
func connect(ctx context.Context, conn net.Conn, via *url.URL, address string) (net.Conn, error) {
	if via.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	req.Header.Set("User-Agent", "pipeops")
	if user := via.User; user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	answer, err := http.ReadResponse(reader, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(via, address, answer)
	}
	// The server does not send before the client's ClientHello.
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
