package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// house is an agent whose knowledge of Runners changes, with who was refused.
type house struct {
	*runnertest.Agent

	mu        sync.Mutex
	labels    map[string]string
	ahead     time.Duration // of the machine's clock is the agent's
	revoked   string
	changed   chan struct{}
	current   func(context.Context) error
	refreshed int
	refusals  []transport.Refusal
}

func openHouse(t *testing.T) *house {
	t.Helper()
	h := &house{labels: map[string]string{"env": "prod"}, changed: make(chan struct{})}
	h.current = func(context.Context) error { return nil }
	h.Agent = runnertest.StartWith(t, runnertest.NewBackend(), h.next, func(c *transport.TLSConfig) {
		c.Time = func() time.Time { defer h.lock()(); return time.Now().Add(h.ahead) }
		c.Labels = func() map[string]string { defer h.lock()(); return h.labels }
		c.Revoked = func(serial string) bool { defer h.lock()(); return serial == h.revoked }
		c.Current = func(ctx context.Context) error {
			unlock := h.lock()
			current := h.current
			unlock()
			return current(ctx)
		}
		c.Refused = func(r transport.Refusal) { defer h.lock()(); h.refusals = append(h.refusals, r) }
		c.Refresh = func(context.Context) error { defer h.lock()(); h.refreshed++; return nil }
	})
	return h
}

func (h *house) lock() (unlock func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

func (h *house) next() <-chan struct{} {
	defer h.lock()()
	return h.changed
}

// change has something change, and the connections looked at.
func (h *house) change(f func()) {
	defer h.lock()()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *house) refused() []transport.Refusal {
	defer h.lock()()
	return append([]transport.Refusal(nil), h.refusals...)
}

// client is a Runner's, whose certificate is changed.
func (h *house) client(t *testing.T, change func(*x509.Certificate)) (*client.Client, string) {
	t.Helper()
	cert := h.CA.IssueWith(t, change, credentials.RunnerURI(runnertest.TrustDomain, runnertest.RunnerName))
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	return h.ClientAs(cert), leaf.SerialNumber.Text(16)
}

func TestGrant_MatchesAgentLabels(t *testing.T) {
	h := openHouse(t)
	c, _ := h.client(t, runnertest.Granted(t, "env=prod"))
	_, err := c.Cluster().Get(ctxFor(t))
	require.NoError(t, err)

	c, serial := h.client(t, runnertest.Granted(t, "env=test"))
	_, err = c.Cluster().Get(ctxFor(t))
	assert.Equal(t, client.CodeRefused, codeOf(t, err))
	require.ErrorContains(t, err, "agent a1 refuses Runner tester: not granted (its certificate is for agents with env=test)")
	require.ErrorContains(t, err, "which the operator makes with: pipeops-controlplane runner create tester -o FILE --force")
	require.Len(t, h.refused(), 1)
	got := h.refused()[0]
	assert.Equal(t, transport.Refusal{
		Code: transport.RefusedNotGranted, Message: "agent refuses Runner tester: not granted; it is for agents with env=test",
		Runner: "tester", Certificate: serial,
	}, got)
}

func TestRunnerCertificate_ReportsRefusals(t *testing.T) {
	h := openHouse(t)
	for code, change := range map[runnerapi.Code]func(*x509.Certificate){
		transport.RefusedExpired: func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		},
		transport.RefusedUnread: func(c *x509.Certificate) {
			runnertest.Granted(t, "a")(c)
			c.ExtraExtensions[0].Value = []byte{0x0c, 3, 'a', ' ', 'b'}
		},
		transport.RefusedUnknown: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	} {
		before := len(h.refused())
		c, serial := h.client(t, change)
		_, err := c.Cluster().Get(ctxFor(t))
		require.Error(t, err)
		all := h.refused()
		require.Len(t, all, before+1, code)
		assert.Equal(t, code, all[before].Code, all[before].Message)
		assert.Equal(t, serial, all[before].Certificate)
		assert.Equal(t, code != transport.RefusedUnknown, all[before].Runner == "tester", "only who was proved is named")
	}
	assert.Empty(t, h.Backend.Calls())
}

// follow follows a log. The channel gets the error that ends it.
func follow(t *testing.T, h *house, c *client.Client) <-chan error {
	t.Helper()
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "nginx"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	ended, before := make(chan error, 1), count(h.Backend, "Apps.Logs")
	ctx := ctxFor(t)
	go func() {
		ended <- c.Apps().Logs(ctx, web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(runnerapi.LogLine) error { return nil })
	}()
	await.Until(t, "the log is followed", func() bool { return count(h.Backend, "Apps.Logs") > before })
	return ended
}

// cut wants a followed log to end, and to have been cut for that reason.
func (h *house) cut(t *testing.T, ended <-chan error, code runnerapi.Code) {
	t.Helper()
	require.Error(t, await.Receive(t, ended, "the end of the stream"))
	var open []runnerapi.Code
	for _, r := range h.refused() {
		if r.Open {
			open = append(open, r.Code)
		}
	}
	assert.Contains(t, open, code)
}

func TestRevokeRunner_ClosesItsConnections(t *testing.T) {
	h := openHouse(t)
	c, serial := h.client(t, runnertest.Granted(t, "env"))
	ended := follow(t, h, c)
	other, _ := h.client(t, func(*x509.Certificate) {})
	spared := follow(t, h, other)
	h.change(func() { h.revoked = serial })
	h.cut(t, ended, transport.RefusedRevoked)
	select {
	case err := <-spared:
		t.Fatalf("another Runner's stream was cut: %v", err)
	default:
	}
	_, err := c.Cluster().Get(ctxFor(t))
	assert.Equal(t, client.CodeRefused, codeOf(t, err))
}

// The agent's clock decides whether a certificate has expired. TestConnections_CloseAtExpiry tests
// that a timer checks at that time.
func TestRunnerConnection_ClosedOnChange(t *testing.T) {
	for code, change := range map[runnerapi.Code]func(*house){
		transport.RefusedNotGranted: func(h *house) { h.labels = map[string]string{"env": "test"} },
		transport.RefusedExpired:    func(h *house) { h.ahead = 2 * time.Hour },
	} {
		h := openHouse(t)
		c, _ := h.client(t, runnertest.Granted(t, "env=prod"))
		ended := follow(t, h, c)
		h.change(func() { change(h) })
		h.cut(t, ended, code)
	}
}

// The agent learns that a Runner is revoked while the Runner waits in the handshake.
func TestRevokeRunner_CheckedBeforeAdmission(t *testing.T) {
	h := openHouse(t)
	c, serial := h.client(t, func(*x509.Certificate) {})
	waits := make(chan struct{})
	h.change(func() {
		h.current = func(context.Context) error {
			h.change(func() { h.revoked = serial })
			close(waits)
			return nil
		}
	})
	_, err := c.Cluster().Get(ctxFor(t))
	assert.Equal(t, client.CodeRefused, codeOf(t, err))
	await.Closed(t, waits, "the agent's question whether it is current")

	// A Runner whom it only cannot judge yet comes again, and is let in then.
	var came atomic.Int32
	h.change(func() {
		h.current = func(context.Context) error {
			if came.Add(1) == 1 {
				return errors.New("away")
			}
			return nil
		}
	})
	c, _ = h.client(t, func(*x509.Certificate) {})
	_, err = c.Cluster().Get(ctxFor(t))
	require.NoError(t, err)
	last := h.refused()[len(h.refused())-1]
	assert.Equal(t, transport.RefusedNotCurrent, last.Code)
}

func (h *house) refresh(t *testing.T, cert tls.Certificate) error {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctxFor(t), "tcp", h.Address)
	require.NoError(t, err)
	return client.Refresh(ctxFor(t), conn, client.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &cert, nil }, Roots: h.CA.Pool,
		TrustDomain: runnertest.TrustDomain, AgentID: runnertest.AgentID, ServerName: runnertest.ServerName,
	})
}

func TestRefresh_OnlyFromControlPlane(t *testing.T) {
	h := openHouse(t)
	domain := runnertest.TrustDomain
	plane := h.CA.Issue(t, credentials.ControlPlaneURI(domain))
	require.NoError(t, h.refresh(t, plane))
	assert.Equal(t, 1, h.refreshed)
	for name, cert := range map[string]tls.Certificate{
		"a Runner":             h.CA.Issue(t, credentials.RunnerURI(domain, "tester")),
		"an agent":             h.CA.Issue(t, credentials.AgentURI(domain, "a2")),
		"another trust domain": h.CA.Issue(t, credentials.ControlPlaneURI("example.org")),
		"another CA":           runnertest.NewCA(t).Issue(t, credentials.ControlPlaneURI(domain)),
	} {
		require.Error(t, h.refresh(t, cert), name)
	}
	for _, signer := range othersThan(trustanchor.RoleControlPlane) {
		require.Error(t, h.refresh(t, h.CA.IssueBy(t, signer, credentials.ControlPlaneURI(domain))), "by the CA for %s", signer)
	}
	assert.Equal(t, 1, h.refreshed)
	assert.Len(t, h.refused(), 9)

	_, err := h.ClientAs(plane).Cluster().Get(ctxFor(t))
	assert.Equal(t, client.CodeRefused, codeOf(t, err), "the control plane is not a Runner")
	assert.Empty(t, h.Backend.Calls())
}
