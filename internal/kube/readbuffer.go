package kube

import (
	"context"
	"net"
	"time"
)

// unread is how much of an unread answer the kernel keeps, in bytes; Linux doubles it for its own
// needs. Its default grows to 6 MiB for each stream, which would count as the agent's memory. The
// rest stays with the API server and the kubelet.
const unread = 64 << 10

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialSmall dials connections with that buffer.
func dialSmall(dial dialFunc) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if small, ok := conn.(interface{ SetReadBuffer(bytes int) error }); ok && err == nil {
			_ = small.SetReadBuffer(unread) // if this fails, only more memory is used
		}
		return conn, err
	}
}
