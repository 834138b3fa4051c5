package controlplane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// namesKept is how long the agents' names are kept before they are read again.
const namesKept = time.Minute

// agentNames has agents' names for metrics and logs. A request does not wait for the database.
type agentNames struct {
	store   *store.Store
	names   atomic.Pointer[map[string]string]
	missing atomic.Bool // a name was not known
	read    time.Time   // by refresh alone
}

// of returns an agent's name, or its ID as long as the name is not known.
func (n *agentNames) of(agentID string) string {
	if names := n.names.Load(); names != nil {
		if name, known := (*names)[agentID]; known {
			return name
		}
	}
	n.missing.Store(true)
	return agentID
}

// refresh reads the names if they are old, or one was missing. It is not called concurrently.
func (n *agentNames) refresh(ctx context.Context) {
	if time.Since(n.read) < namesKept && !n.missing.Swap(false) {
		return
	}
	n.read = time.Now()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if names, err := n.store.AgentNames(ctx); err == nil {
		n.names.Store(&names)
	}
}
