package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// news is what the control plane has reported about Runners and about this agent. It decides which
// Runners are admitted: it names the revoked certificates and the agent's labels.
//
// It is only valid while no change can have been missed. After a tunnel was down, or after a
// refresh request, it must be confirmed by the answer to a later heartbeat. Until then no Runner is
// admitted.
type news struct {
	mu      sync.Mutex
	revoked []string
	labels  map[string]string
	wanted  uint64 // counts the reasons to ask again
	heard   uint64 // the reason that the last answer covered
	changed chan struct{}
}

// newNews returns news that must be requested first.
func newNews() *news { return &news{wanted: 1, changed: make(chan struct{})} }

// expire marks the known state as possibly outdated.
func (n *news) expire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted++
}

// refused returns the serial numbers that the last answer named, as many as a heartbeat takes.
func (n *news) refused() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revoked[:min(len(n.revoked), controlapi.MaxRevokedRunners)]
}

// ask is called before a request; pass its result to tell with the answer.
func (n *news) ask() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// tell records the answer to a request with that reason.
func (n *news) tell(reason uint64, revoked []string, labels map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revoked, n.labels, n.heard = revoked, labels, reason
	close(n.changed)
	n.changed = make(chan struct{})
}

// current waits until the known state is current.
func (n *news) current(ctx context.Context) error {
	n.mu.Lock()
	want := n.wanted
	n.mu.Unlock()
	for {
		n.mu.Lock()
		heard, changed := n.heard, n.changed
		n.mu.Unlock()
		if heard >= want {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("it has not answered a heartbeat since the tunnel came up")
		}
	}
}

// recheck makes open connections be checked again, because something other than the news has
// changed.
func (n *news) recheck() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// next returns a channel that is closed at the next tell or recheck.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *news) isRevoked(serial string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.revoked, serial)
}

func (n *news) own() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.labels // replaced, never modified
}

// runnerTLS returns the TLS configuration for Runners. TLS ends in the agent: everything in between
// sees ciphertext.
func (a *Agent) runnerTLS(refusals *refusals) *tls.Config {
	return transport.TLS(transport.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &a.current.Load().Certificate, nil },
		Roots:       func() *x509.CertPool { return a.current.Load().Roots },
		TrustDomain: a.current.Load().TrustDomain,
		Time:        a.now,
		Trusts:      func(runner string, certs []*x509.Certificate) error { return a.policy.Trusts(runner, certs, a.now()) },
		Revoked:     a.news.isRevoked, Labels: a.news.own, Current: a.news.current,
		Refused: refusals.note, Refresh: a.refreshed,
	})
}

// refreshed handles a refresh request: it requests news and returns once they have arrived.
func (a *Agent) refreshed(ctx context.Context) error {
	a.news.expire()
	a.beat.Raise()
	return a.news.current(ctx)
}
