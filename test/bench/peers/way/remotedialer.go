package way

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
)

func remotedialerRelay(ctx context.Context, at Place) {
	handler := remotedialer.New(func(r *http.Request) (string, bool, error) {
		return AgentID, len(r.TLS.PeerCertificates) > 0, nil
	}, remotedialer.DefaultErrorWriter)
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	together(
		func() error { return srv.Serve(tls.NewListener(listen(ctx, at.Tunnel), relayTLS(at.Dir))) },
		func() error {
			return relayTo(ctx, at.Public, func() (net.Conn, error) { return handler.Dialer(AgentID)(ctx, "tcp", at.Local) })
		},
	)
}

func remotedialerAgent(ctx context.Context, at Place) {
	dialer := &websocket.Dialer{TLSClientConfig: agentTLS(at.Dir), HandshakeTimeout: remotedialer.HandshakeTimeOut}
	allow := func(_, address string) bool { return address == at.Local }
	together(
		func() error { return serveAt(ctx, at.Local, at.Dir) },
		func() error {
			for { // ClientConnect waits 5 s after a failure, and leaves trying again to its caller
				_ = remotedialer.ClientConnect(ctx, "wss://"+at.Via, nil, dialer, allow, nil)
			}
		},
	)
}
