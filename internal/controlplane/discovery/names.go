package discovery

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// namesKept is how long the agents' names are kept before they are read again.
const namesKept = time.Minute

// Names has agents' names for metrics and logs. A request does not wait for the database.
type Names struct {
	store   *store.Store
	names   atomic.Pointer[map[string]string]
	missing atomic.Bool // a name was not known
	read    time.Time   // by Refresh alone
}

// NewNames returns Names that knows none before the first Refresh.
func NewNames(s *store.Store) *Names { return &Names{store: s} }

// Of returns an agent's name, or its ID as long as the name is not known.
func (n *Names) Of(agentID string) string {
	if names := n.names.Load(); names != nil {
		if name, known := (*names)[agentID]; known {
			return name
		}
	}
	n.missing.Store(true)
	return agentID
}

// Refresh reads the names if they are old, or one was missing. It is not called concurrently.
func (n *Names) Refresh(ctx context.Context) {
	if time.Since(n.read) < namesKept && !n.missing.Swap(false) {
		return
	}
	n.read = time.Now()
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if names, err := n.store.AgentNames(ctx); err == nil {
		n.names.Store(&names)
	}
}
