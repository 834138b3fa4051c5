package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const fixProxy = "correct HTTPS_PROXY, start the proxy, or put the control plane's host into NO_PROXY"

// proxy finds the way to the control plane, and tries the first step of it.
func (n *network) proxy(ctx context.Context) []Finding {
	if n.target == nil {
		return failed("the control plane's URL is not known", "set PIPEOPS_CONTROL_PLANE_URL to https://HOST[:PORT]")
	}
	via, err := n.proxies(n.target)
	if err != nil {
		return failed("HTTPS_PROXY is not the URL of a proxy", fixProxy) // the URL may hold a password
	}
	if via == nil {
		return ok("none; connections go out directly")
	}
	if err := dial(ctx, addressOf(via)); err != nil {
		return failed(fmt.Sprintf("%s does not answer: %v", via.Redacted(), err), fixProxy)
	}
	n.via = via
	return ok(via.Redacted() + " answers")
}

// dns resolves the control plane's name, if it is up to this machine to do so.
func (n *network) dns(ctx context.Context) []Finding {
	host := n.target.Hostname()
	switch {
	case net.ParseIP(host) != nil:
		return ok(host + " is an address already")
	case n.via != nil:
		return skipped("the proxy resolves " + host)
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return failure(n.explain(err), "correct the name in PIPEOPS_CONTROL_PLANE_URL, or this machine's DNS")
	}
	return ok(host + " is " + strings.Join(addresses, ", "))
}

// tcp connects to the control plane's port, if that is up to this machine.
func (n *network) tcp(ctx context.Context) []Finding {
	address := addressOf(n.target)
	if n.via != nil {
		return skipped("the proxy connects to " + address)
	}
	start := time.Now()
	if err := dial(ctx, address); err != nil {
		return failure(n.explain(err), "let outbound TCP to "+address+" through the firewall, or set HTTPS_PROXY")
	}
	return ok(fmt.Sprintf("%s answers in %s", address, time.Since(start).Round(100*time.Microsecond)))
}

// explain returns what kept us from an answer of the control plane.
func (n *network) explain(err error) error { return controlapi.Explain(n.target, n.Now, err) }

func dial(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// addressOf returns host:port of a URL.
func addressOf(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "socks5": "1080"}[u.Scheme])
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
