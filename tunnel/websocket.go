package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// maxHandshakeAnswer bounds the header of the answer to the WebSocket request.
const maxHandshakeAnswer = 16 << 10

// connectWebsocket makes the authenticated connection over the control plane's HTTPS API.
func (t *Tunnel) connectWebsocket(ctx context.Context) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg, made, err := t.websocketTLS(ctx)
	if err != nil {
		return nil, err
	}
	var socket *link.Socket
	transport := &http.Transport{
		// dial handles proxies.
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			raw, err := t.dial(ctx, address)
			if err != nil {
				return nil, err
			}
			socket = link.NewSocket(raw)
			return socket, nil
		},
		TLSClientConfig: cfg, Protocols: new(http.Protocols), MaxResponseHeaderBytes: maxHandshakeAnswer,
	}
	transport.Protocols.SetHTTP1(true) // WebSockets need HTTP/1.1
	defer transport.CloseIdleConnections()
	upgraded, resp, err := websocket.Dial(ctx, t.websocketURL(), &websocket.DialOptions{ //nolint:bodyclose // the library does
		HTTPClient: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect would send the certificate elsewhere
		}},
		HTTPHeader:   http.Header{"User-Agent": {"pipeops-agent"}},
		Subprotocols: []string{link.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, t.websocketError(resp, err)
	}
	conn := link.NewWebsocket(upgraded) //nolint:contextcheck // it lives longer than its making
	if upgraded.Subprotocol() != link.Subprotocol {
		return nil, errors.Join(t.websocketError(nil, errors.New("what answers there is no control plane")), conn.Close())
	}
	return &line{Conn: conn, below: socket, transport: Websocket, made: made}, nil
}

// websocketTLS returns the TLS configuration for the HTTPS API, and the one that its source
// returned.
func (t *Tunnel) websocketTLS(ctx context.Context) (cfg, made *tls.Config, err error) {
	made, err = t.source(Websocket)(ctx)
	if err != nil {
		return nil, nil, t.explain.wrap("get the certificate to connect to", err, "check the agent's identity; it is tried again by itself")
	}
	cfg = made.Clone()
	cfg.MinVersion = tls.VersionTLS13
	cfg.NextProtos = nil
	return cfg, made, nil
}

// websocketURL returns the URL for the WebSocket request.
func (t *Tunnel) websocketURL() string {
	u, err := url.Parse(t.cfg.Websocket)
	if err != nil {
		return t.cfg.Websocket // New has checked it
	}
	return u.JoinPath(link.WebsocketPath).String()
}

// websocketError describes the answer of the control plane, or of another server in its place.
func (t *Tunnel) websocketError(resp *http.Response, err error) error {
	if already, ok := errors.AsType[*Error](err); ok {
		return already
	}
	explained := t.explain.connectFailure(err)
	if resp != nil {
		explained.Err, explained.Action = fmt.Errorf("it answered %s", resp.Status), actNewer
		if resp.Header.Get("Content-Type") == problem.ContentType && resp.Body != nil {
			told := problem.Read(resp)
			explained.Err, explained.Action, explained.Spread = errors.New(told.Detail), told.Fix, told.RetryAfter
		}
	}
	explained.Where = t.websocketURL()
	return explained
}
