package exec

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

// keepAlive detects within a minute that the API server is gone. The kernel answers it, without
// anything that could reset a connection whose end is still in flight.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

// executor runs a command by SPDY without pings, because client-go's WebSocket loses the end of the
// output for a slow reader (ADR 0029). It uses WebSocket if the API server does not support SPDY.
func (x *Executor) executor(u *url.URL) (remotecommand.Executor, error) {
	overSPDY, err := spdyExecutor(x.rest, u)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the container: %w", err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(x.rest, http.MethodGet, u.String())
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the container: %w", err)
	}
	return remotecommand.NewFallbackExecutor(overSPDY, overWebSocket, httpstream.IsUpgradeFailure)
}

// spdyExecutor is like remotecommand.NewSPDYExecutor, but without the pings.
func spdyExecutor(rc *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	tls, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if rc.Proxy != nil {
		proxy = rc.Proxy
	}
	upgrading, err := streamspdy.NewRoundTripperWithConfig(streamspdy.RoundTripperConfig{TLS: tls, Proxier: proxy})
	if err != nil {
		return nil, err
	}
	upgrading.Dialer = &net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: keepAlive}
	wrapped, err := rest.HTTPWrappersForConfig(rc, upgrading)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewSPDYExecutorForTransports(wrapped, spdy.NewUpgraderForStreaming(upgrader{upgrading}), http.MethodPost, u)
}

// upgrader reports an answer that is not a SPDY connection as such, so that WebSocket is tried.
// That also returns an API server's refusal in full.
type upgrader struct{ *streamspdy.SpdyRoundTripper }

// NewConnection implements httpstream.UpgradeRoundTripper.
func (u upgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	conn, err := u.SpdyRoundTripper.NewConnection(resp)
	if err != nil {
		return nil, &httpstream.UpgradeFailureError{Cause: err}
	}
	return conn, nil
}
