package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// lookTimeout is how long the cluster's load balancer may take to present its key.
const lookTimeout = 4 * time.Second

// Endpoints is how the agent connects to its cluster's own load balancer.
type Endpoints struct {
	// Allowed are networks that count as public.
	Allowed []netip.Prefix
	// Port is that of HTTPS; 443 if zero.
	Port int
}

// key answers the gateway which key the cluster's load balancer presents for a host. The routes of
// this agent name the load balancer, and not the gateway.
func (h *Handler) key(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r)
	endpoint := h.routes.Load().endpoint(host)
	if endpoint == "" {
		h.answer(w, r, http.StatusNotFound, gatewaywire.NoRoute, nil)
		return
	}
	key, err := h.Endpoints.look(r.Context(), endpoint, host)
	if err != nil {
		w.Header().Set(gatewaywire.HeaderKeyReason, printable.Line(err.Error(), false))
		h.answer(w, r, http.StatusBadGateway, gatewaywire.Unreachable, err)
		return
	}
	w.Header().Set(gatewaywire.HeaderKey, key)
	w.WriteHeader(http.StatusNoContent)
}

// endpoint returns the load balancer's address of a host; empty for none.
func (t table) endpoint(host string) string {
	if routes := t[host]; len(routes) > 0 {
		return routes[0].Endpoint
	}
	return ""
}

// look returns the key that an endpoint presents for a host.
func (e Endpoints) look(ctx context.Context, endpoint, host string) (key string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	port := cmp.Or(e.Port, 443)
	d := &tls.Dialer{NetDialer: &net.Dialer{Control: e.control}, Config: &tls.Config{
		ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // the key is what is asked for: the gateway compares it with the one that it sees
		VerifyConnection: func(state tls.ConnectionState) error {
			key = gatewaywire.KeyOf(state.PeerCertificates[0])
			return nil
		},
	}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(endpoint, strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	return key, conn.Close()
}

var errNotPublic = errors.New("is not a public address")

func (e Endpoints) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if !egress.IsPublic(to.Addr(), e.Allowed) {
		return fmt.Errorf("%s %w", to.Addr(), errNotPublic)
	}
	return nil
}
