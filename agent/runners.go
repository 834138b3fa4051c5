package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// news is what the control plane has said of Runners and of this agent, by which
// Runners are let in: which certificates are revoked, and the agent's labels.
//
// What it says is only good for as long as nothing may have changed unheard. When
// the tunnel was down, or the control plane nudges, it has to be said again, by the
// answer to a heartbeat that is sent later; until then nobody is let in.
type news struct {
	mu      sync.Mutex
	revoked []string
	labels  map[string]string
	wanted  uint64 // counts the reasons to ask again
	heard   uint64 // of which reason the last answer was the answer
	changed chan struct{}
}

// newNews knows nothing yet.
func newNews() *news { return &news{wanted: 1, changed: make(chan struct{})} }

// expire says that what is known may not be so any more.
func (n *news) expire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted++
}

// ask is to be called before asking; its answer goes into tell with what was heard.
func (n *news) ask() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// tell takes what was heard when asked for that reason.
func (n *news) tell(reason uint64, revoked []string, labels map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revoked, n.labels, n.heard = revoked, labels, reason
	close(n.changed)
	n.changed = make(chan struct{})
}

// current waits until what is known is as of now or later.
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

// recheck has those who were let in looked at again: something else than the news has changed.
func (n *news) recheck() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// next is closed at the next tell or recheck.
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
	return n.labels // replaced, never written
}

// runnerTLS ends the Runner's TLS in the agent: what is between sees ciphertext.
func (a *Agent) runnerTLS(refusals *refusals) *tls.Config {
	return runnerapi.ServerTLS(runnerapi.ServerTLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &a.current.Load().Certificate, nil },
		Roots:       func() *x509.CertPool { return a.current.Load().Roots },
		TrustDomain: a.current.Load().TrustDomain,
		Time:        a.now,
		Trusts:      func(runner string, certs []*x509.Certificate) error { return a.policy.Trusts(runner, certs, a.now()) },
		Revoked:     a.news.isRevoked, Labels: a.news.own, Current: a.news.current,
		Refused: refusals.note, Nudge: a.nudged,
	})
}

// nudged asks the control plane for its news, and answers when they were heard.
func (a *Agent) nudged(ctx context.Context) error {
	a.news.expire()
	a.beatSoon()
	return a.news.current(ctx)
}
