package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

const (
	// refreshTimeout bounds how long an agent takes for a refresh request.
	refreshTimeout = 15 * time.Second
)

// refreshVerifier admits the control plane, for refresh requests only.
func (c *TLSConfig) refreshVerifier(hello *tls.ClientHelloInfo) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if refusal := c.judgeRefresh(state); refusal != nil {
			return c.turnAway(refusal)
		}
		d, ok := hello.Conn.(*trackedConn)
		if !ok {
			return errors.New("no agent serves this connection") // not served by Serve
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.refresh = c.Refresh
		return nil
	}
}

func (c *TLSConfig) judgeRefresh(state tls.ConnectionState) *Refusal {
	leaf := state.PeerCertificates[0]
	chains, err := c.verify(state.PeerCertificates)
	if err == nil {
		err = trustanchor.SignedFor(chains, c.TrustDomain, trustanchor.RoleControlPlane)
	}
	if err != nil {
		return refuse(leaf, "", RefusedUnknown, "the agent does not trust the certificate of a refresh request: %v", err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != credentials.ControlPlaneURI(c.TrustDomain).String() {
		return refuse(leaf, "", RefusedUnknown, "only the control plane may send a refresh request, and this certificate is not its own")
	}
	return nil
}

// serveRefresh is a handler for http.Server.TLSNextProto.
func serveRefresh(_ *http.Server, conn *tls.Conn, h http.Handler) {
	d, ok := conn.NetConn().(*trackedConn)
	if !ok {
		return
	}
	d.mu.Lock()
	refresh := d.refresh
	d.mu.Unlock()
	if refresh == nil {
		return
	}
	ctx := context.Background()
	if based, ok := h.(interface{ BaseContext() context.Context }); ok { // how net/http provides it
		ctx = based.BaseContext()
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(refreshTimeout))
	if refresh(ctx) == nil {
		_, _ = conn.Write([]byte{wire.RefreshDone}) // the control plane is gone if this fails
	}
}
