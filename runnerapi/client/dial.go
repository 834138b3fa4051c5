package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/dialrace"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// dialer makes connections to the agent through one of the edge addresses.
type dialer struct {
	config    Config
	tls       *tls.Config
	proxy     proxy.Func
	endpoints *endpoints
}

// newDialer returns a dialer for one protocol. The dialers of one client share what they learn
// about the endpoints.
func newDialer(c Config, protocol string, endpoints *endpoints) *dialer {
	agentID := c.AgentID
	if agentID == c.ServerName {
		agentID = ""
	}
	d := &dialer{config: c, endpoints: endpoints, proxy: proxy.FromEnvironment(), tls: TLS(TLSConfig{
		Certificate: c.Certificate, Roots: c.Roots, TrustDomain: c.TrustDomain,
		AgentID: agentID, ServerName: c.ServerName,
	})}
	d.tls.NextProtos = []string{protocol}
	return d
}

// dial tries the addresses, those that recently succeeded first. An address that hangs does not
// delay the next one for long. If another peer than the agent replies, or the agent refuses our
// certificate, dial returns at once: that is not an outage.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	waiting := d.endpoints.order()
	won, failed := dialrace.Race[reached]{
		Patience: d.endpoints.patience,
		Next: func() func(context.Context) (reached, error) {
			if len(waiting) == 0 {
				return nil
			}
			n := waiting[0]
			waiting = waiting[1:]
			return func(ctx context.Context) (reached, error) {
				conn, err := d.dialOne(ctx, n)
				if err != nil && ctx.Err() == nil && !final(err) {
					d.endpoints.failed(n)
				}
				return reached{conn, n}, err
			}
		},
		Final: final,
		Close: func(r reached) { _ = r.conn.Close() }, // the connection was never used
	}.Run(ctx)
	if won.conn != nil {
		d.endpoints.worked(won.n)
		return won.conn, nil
	}
	if n := len(failed); n > 0 && final(failed[n-1]) {
		return nil, failed[n-1]
	}
	return nil, dialErrors(failed)
}

// reached is a connection through one of the addresses.
type reached struct {
	conn net.Conn
	n    int
}

// final reports whether trying the other addresses is pointless.
func final(err error) bool { return isUntrusted(err) || isRefused(err) || lacksProxy(err) }

// lacksProxy reports whether a proxy's failure lasts until its variables change.
func lacksProxy(err error) bool {
	failed, ok := proxy.Explain(err)
	return ok && failed.Final
}

func (d *dialer) dialOne(ctx context.Context, n int) (net.Conn, error) {
	address := d.config.EdgeAddresses[n]
	raw, err := d.reach(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("edge %s: %w", address, err)
	}
	handshake, cancel := context.WithTimeout(ctx, d.endpoints.handshake)
	defer cancel()
	conn := &agentConn{Conn: tls.Client(raw, d.tls), lost: func() { d.endpoints.failed(n) }}
	if err := conn.begin(handshake); err != nil {
		_ = raw.Close() // the handshake's error is enough
		return nil, fmt.Errorf("edge %s: %w", address, explainHandshake(err))
	}
	return conn, nil
}

func (d *dialer) reach(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return d.proxy.Dial(ctx, address)
}

// agentConn is a connection on which the agent has sent data.
type agentConn struct {
	*tls.Conn
	reader *bufio.Reader
	lost   func() // called when the connection breaks, not when we close it
	closed atomic.Bool
}

func (c *agentConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil && !c.closed.Swap(true) {
		c.lost()
	}
	return n, err
}

// Close closes the connection.
func (c *agentConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// begin completes the handshake and waits for the agent's first byte. In TLS 1.3 the client
// finishes the handshake before the server has looked at its certificate. A client that writes at
// once may then get a connection reset in place of the reason. An HTTP/2 server sends first anyway.
func (c *agentConn) begin(ctx context.Context) error {
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	switch p := c.ConnectionState().NegotiatedProtocol; p {
	case wire.HTTP2:
	case wire.HTTP1: // its server does not send first
		c.reader = bufio.NewReader(c.Conn)
		return nil
	default:
		return &identityError{fmt.Errorf("it speaks %q and not HTTP", p)}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })
	defer stop()
	c.reader = bufio.NewReader(c.Conn)
	if _, err := c.reader.Peek(1); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

var (
	// errNotConnected reports the edge's refusal.
	errNotConnected = errors.New("the control plane has no tunnel to the agent now")
	// errHungUp means that no data arrived: the edge's tunnel ended, or the agent has not yet heard
	// from the control plane that revoked its certificate.
	errHungUp = errors.New("the agent hung up: its tunnel has just begun or ended")
)

// Alerts with which a peer may end the handshake (RFC 8446, section 6.2).
const (
	alertExpired          = 45
	alertUnrecognizedName = 112 // the edge knows no such agent
)

// certificateAlerts are the alerts that mean that the agent refuses our certificate.
var certificateAlerts = []uint8{42, 43, 44, alertExpired, 46, 48, 49, 116}

func explainHandshake(err error) error {
	switch {
	case isAlert(err, alertUnrecognizedName):
		return errNotConnected
	case errors.Is(err, io.EOF):
		return errHungUp
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the agent did not answer within %s", handshakeTimeout)
	}
	return err
}

// isAlert reports whether the peer ended the handshake with one of these alerts. crypto/tls hides
// the number but not the text.
func isAlert(err error, alerts ...uint8) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	return slices.ContainsFunc(alerts, func(a uint8) bool { return tls.AlertError(a).Error() == remote.Err.Error() })
}

// isUntrusted reports whether we refused the peer's certificate.
func isUntrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var identity *identityError
	return errors.As(err, &verification) || errors.As(err, &identity)
}

// outOfTime reports whether our certificate is not valid now, by our clock.
func (c *core) outOfTime() bool {
	leaf, err := c.leaf()
	now := time.Now()
	return err == nil && (now.Before(leaf.NotBefore) || now.After(leaf.NotAfter))
}

// leaf returns our certificate.
func (c *core) leaf() (*x509.Certificate, error) {
	cert, err := c.config.Certificate()
	switch {
	case err != nil:
		return nil, err
	case cert.Leaf != nil:
		return cert.Leaf, nil
	case len(cert.Certificate) == 0:
		return nil, errors.New("there is no certificate")
	}
	return x509.ParseCertificate(cert.Certificate[0])
}

// refusedBy describes why the agent refused our certificate. TLS sends no reason, so it derives the
// likely one from our certificate.
func (c *core) refusedBy(alert error) *runnerapi.Error {
	who, again, granted, key := "this Runner", "NAME", "", "its key"
	if leaf, err := c.leaf(); err == nil {
		key = "its key, " + credentials.KeyFingerprint(leaf) + ","
		if name, err := credentials.CertificateName(leaf, c.config.TrustDomain, trustanchor.RoleRunner); err == nil {
			who, again = "Runner "+name, name
		}
		if grant, err := credentials.GrantOf(leaf); err == nil && !grant.All() {
			granted = fmt.Sprintf("not granted (its certificate is for agents with %s), or ", grant)
		}
	}
	return problem.New(http.StatusUnauthorized, CodeRefused,
		"ask the operator of the control plane: `pipeops-controlplane runner list --all` shows what Runners are granted and which were revoked. "+
			"Who was revoked needs new credentials, which the operator makes with: pipeops-controlplane runner create "+again+" -o FILE --force. "+
			"Which keys the policy of the cluster's owner trusts, if it names any, the owner says",
		"agent %s refuses %s: %sits certificate was revoked, or is not one of the agent's control plane, or %s is not one that the cluster's owner trusts (%v)",
		c.config.AgentID, who, granted, key, alert)
}

// isRefused reports whether the agent refused our certificate.
func isRefused(err error) bool { return isAlert(err, certificateAlerts...) }

// isExpired reports whether a certificate was refused for its validity period: the agent's by us,
// or ours by the agent, whose alert does not say which.
func (c *core) isExpired(err error) bool {
	if isRefused(err) && c.outOfTime() {
		return true
	}
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired || isAlert(err, alertExpired)
}
