package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// namesKept is how long the agents' names are kept before they are read again.
const namesKept = time.Minute

// agentNames returns agents' names for metrics and logs without a query for each.
type agentNames struct {
	store *store.Store

	mu    sync.Mutex
	names map[string]string
	read  time.Time
}

func newAgentNames(s *store.Store) *agentNames { return &agentNames{store: s} }

// of returns an agent's name, or its ID if that is not known.
func (n *agentNames) of(agentID string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.names[agentID]
	if !ok && time.Since(n.read) > namesKept/10 || time.Since(n.read) > namesKept {
		n.refresh()
		name, ok = n.names[agentID]
	}
	if !ok {
		return agentID
	}
	return name
}

func (n *agentNames) refresh() {
	n.read = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	names, err := n.store.AgentNames(ctx)
	if err == nil {
		n.names = names
	}
}
