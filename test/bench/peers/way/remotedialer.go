package way

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"golang.org/x/sync/errgroup"
)

func remotedialerRelay(ctx context.Context, at Place) error {
	secure, err := relayTLS(at.Dir)
	if err != nil {
		return err
	}
	handler := remotedialer.New(func(r *http.Request) (string, bool, error) {
		return AgentID, len(r.TLS.PeerCertificates) > 0, nil
	}, remotedialer.DefaultErrorWriter)
	ln, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.Serve(tls.NewListener(ln, secure)) })
	group.Go(func() error {
		return relayTo(ctx, at.Public, func(ctx context.Context) (net.Conn, error) {
			return handler.Dialer(AgentID)(ctx, "tcp", at.Local)
		})
	})
	return group.Wait()
}

func remotedialerAgent(ctx context.Context, at Place) error {
	secure, err := agentTLS(at.Dir)
	if err != nil {
		return err
	}
	dialer := &websocket.Dialer{TLSClientConfig: secure, HandshakeTimeout: remotedialer.HandshakeTimeOut}
	allow := func(_, address string) bool { return address == at.Local }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	group.Go(func() error {
		for ctx.Err() == nil { // ClientConnect waits 5 s after a failure, and leaves trying again to its caller
			_ = remotedialer.ClientConnect(ctx, "wss://"+at.Via, nil, dialer, allow, nil)
		}
		return nil
	})
	return group.Wait()
}
