// Package proxy decides through which proxy a connection to another machine goes, and makes
// connections through proxies. Everything that heeds HTTPS_PROXY and NO_PROXY asks it.
package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// Func returns the proxy for a URL, and nil for none. A nil Func connects directly.
type Func func(*url.URL) (*url.URL, error)

// For returns the proxy for a request, as http.Transport's field Proxy does.
func (f Func) For(r *http.Request) (*url.URL, error) {
	if f == nil {
		return nil, nil
	}
	return f(r.URL)
}

// Use makes a transport go through the proxies. Of its errors, [Explain] returns the proxy's part.
func (f Func) Use(t *http.Transport) *http.Transport {
	t.Proxy = f.For
	t.OnProxyConnectResponse = func(_ context.Context, via *url.URL, connect *http.Request, answer *http.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		return refusal(via, connect.Host, answer)
	}
	return t
}

// Dial connects to a HOST:PORT, directly or through the proxy for HTTPS to that host. A failure of
// the proxy is an *Error.
func (f Func) Dial(ctx context.Context, address string) (net.Conn, error) {
	var via *url.URL
	if f != nil {
		var err error
		if via, err = f(&url.URL{Scheme: "https", Host: address}); err != nil {
			return nil, err
		}
	}
	if via == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	conn, err := dialVia(ctx, via, address)
	if err != nil {
		if already, ok := Explain(err); ok {
			return nil, already
		}
		return nil, &Error{Proxy: via.Redacted(), Err: err, Fix: fixUnreachable()}
	}
	return conn, nil
}

// DialContext is Dial in the form of http.Transport's field.
func (f Func) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return f.Dial(ctx, address)
}

func dialVia(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	switch via.Scheme {
	case "socks5", "socks5h":
		return dialSOCKS(ctx, via, address)
	case "http", "https":
		return dialHTTP(ctx, via, address)
	}
	return nil, fmt.Errorf("proxies of the kind %q are not supported, only http, https and socks5", via.Scheme)
}
