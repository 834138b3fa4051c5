package agents

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// noteAgent records an agent's progress in a rotation when that changed.
func (r *Fleet) noteAgent(ctx context.Context, agentID, bundle string, cert *x509.Certificate) error {
	if cert == nil {
		return nil
	}
	t := store.AgentTrust{AgentID: agentID, Bundle: bundle, Issuer: r.ca.RootID(cert)}
	if !r.cfg.Shared {
		return r.trust.note(ctx, t)
	}
	// The agent may also have reached another control plane.
	known, err := r.store.AgentTrust(ctx, agentID)
	if err != nil && !errors.Is(err, store.ErrNotFound) || known == t {
		return err
	}
	return r.trust.write(ctx, t)
}

// agentTrust writes the agents' progress in a rotation. After a restart of the control plane all
// agents report at once, each for the first time. Reports that arrive close together are written
// together, and answered after that.
type agentTrust struct {
	store *store.Store
	known sync.Map // what was written last, by agent

	mu      sync.Mutex
	next    *trustBatch // collects reports; nil if there are none
	written time.Time   // when the last write began
}

// trustBatch is what is written in one transaction.
type trustBatch struct {
	trusts []store.AgentTrust
	done   chan struct{} // closed once err is set
	err    error
}

var errTrustUnwritten = errors.New("what agents have of the CA's rotation was not written")

// note saves most heartbeats a database access, unless other control planes hear heartbeats too.
func (a *agentTrust) note(ctx context.Context, t store.AgentTrust) error {
	if last, ok := a.known.Load(t.AgentID); ok && last == t {
		return nil
	}
	if err := a.write(ctx, t); err != nil {
		return err
	}
	a.known.Store(t.AgentID, t)
	return nil
}

// write returns once the record is written. The first call of a batch writes it for all.
func (a *agentTrust) write(ctx context.Context, t store.AgentTrust) error {
	a.mu.Lock()
	batch, first := a.next, a.next == nil
	if first {
		batch = &trustBatch{done: make(chan struct{}), err: errTrustUnwritten}
		a.next = batch
	}
	batch.trusts = append(batch.trusts, t)
	begun := a.written
	a.mu.Unlock()
	if first {
		a.writeAll(ctx, batch, begun.Add(liveness.GatherFor))
	}
	select {
	case <-batch.done:
		return batch.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeAll collects until then, and writes. It continues if the call that runs it has ended.
func (a *agentTrust) writeAll(ctx context.Context, batch *trustBatch, then time.Time) {
	defer close(batch.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	retry.Wait(ctx, time.Until(then))
	a.mu.Lock()
	a.next, a.written = nil, time.Now()
	a.mu.Unlock()
	batch.err = a.store.UpdateQuietly(ctx, func(tx *store.Tx) error {
		for _, t := range batch.trusts {
			if err := tx.PutAgentTrust(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
}
