package agent

import (
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// currentIdentity is the identity that the agent uses now, nil until there is one. The TLS
// configurations follow it.
type currentIdentity struct {
	atomic.Pointer[identity.Identity]
	now    func() time.Time
	health *health
	fresh  wake.Signal // a new certificate
}

// adopt makes id the agent's identity from now on.
func (c *currentIdentity) adopt(id *identity.Identity) {
	c.Store(id)
	c.fresh.Raise()
	c.health.set("identity", stateOK)
}

// following returns the TLS configuration for the current identity. It returns the same pointer for
// as long as certificate and CAs are the same, even if other parts change.
func (c *currentIdentity) following(of func(*identity.Identity) *tls.Config) func() *tls.Config {
	var (
		mu   sync.Mutex
		made *identity.Identity
		cfg  *tls.Config
	)
	return func() *tls.Config {
		mu.Lock()
		defer mu.Unlock()
		if id := c.Load(); !id.Same(made) || id.CABundle != made.CABundle {
			made, cfg = id, of(id)
			cfg.Time = c.now
		}
		return cfg
	}
}

// certificateState is a function for ask. Until there is an identity, that is what is missing.
func (c *currentIdentity) certificateState() string {
	id := c.Load()
	if id == nil || c.now().Before(id.NotAfter()) {
		return stateOK
	}
	return "expired at " + id.NotAfter().UTC().Format(time.RFC3339)
}
