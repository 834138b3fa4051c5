package gateway

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Port is a public port, and the App that has it.
type Port struct {
	Protocol                string
	Number                  int
	AgentID, Namespace, App string
	// Host is the App's below the gateway's domain, and Port the one of its Service.
	Host string
	Port int32
}

// refreshPorts reads which Apps have which ports. Those of an agent that was not heard for long are
// not served.
func (t *Table) refreshPorts(ctx context.Context, sets map[string]store.RouteSet) error {
	if !t.open.Any() {
		return nil
	}
	claims, err := t.store.PortClaims(ctx)
	if err != nil {
		return err
	}
	served, now := []Port(nil), t.now()
	for _, r := range ports.Settle(claims, t.open) {
		if r.Served && expired(sets[r.AgentID].At, now) {
			continue
		}
		if r.Served {
			served = append(served, Port{
				Protocol: r.Protocol, Number: r.Public(), AgentID: r.AgentID, Namespace: r.Namespace, App: r.App, Host: r.Host, Port: int32(r.Port), //nolint:gosec // a port
			})
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ports = served
	return nil
}

func expired(heard, now time.Time) bool { return now.Sub(heard) >= RoutesTTL }

// Ports returns the public ports that Apps have.
func (t *Table) Ports() []Port {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ports
}
