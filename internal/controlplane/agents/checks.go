package agents

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// noteChecks stores the findings of an agent's own checks if they changed. It announces nothing to
// Runners: the findings are for operators.
func (r *Fleet) noteChecks(ctx context.Context, a store.Agent, reported *controlapi.Checks) error {
	if reported == nil {
		return nil // a leader that has not looked yet
	}
	now := store.Checks{Findings: make([]store.Finding, 0, len(reported.Findings))}
	for _, f := range reported.Findings {
		now.Findings = append(now.Findings, store.Finding{
			Check: f.Check, Status: f.Status, Detail: printable.Text(f.Detail), Fix: printable.Text(f.Fix), Since: r.cfg.Now().UTC(),
		})
	}
	if a.Checks != nil {
		if slices.EqualFunc(a.Checks.Findings, now.Findings, sameFinding) {
			return nil
		}
		keepSince(now.Findings, a.Checks.Findings)
	}
	err := r.store.Update(ctx, func(tx *store.Tx) error { return tx.SetChecks(ctx, a.ID, &now) })
	if errors.Is(err, store.ErrNotFound) {
		return authn.UnknownAgent(a.ID)
	}
	return err
}

// noteOutage stores what a replica that does not lead finds, while none leads: without the
// Kubernetes API no replica can. What the last leader found stays.
func (r *Fleet) noteOutage(ctx context.Context, a store.Agent, reported *controlapi.Checks) error {
	if reported == nil || !r.liveness.Leaderless(a.ID) {
		return nil
	}
	now := controlapi.Checks{Findings: slices.Clone(reported.Findings)}
	if a.Checks != nil {
		for _, f := range a.Checks.Findings {
			if !slices.ContainsFunc(reported.Findings, func(n controlapi.Finding) bool { return n.Check == f.Check }) {
				now.Findings = append(now.Findings, controlapi.Finding{Check: f.Check, Status: f.Status, Detail: f.Detail, Fix: f.Fix})
			}
		}
	}
	return r.noteChecks(ctx, a, &now)
}

// keepSince carries over since when each finding is known.
func keepSince(now, before []store.Finding) {
	for i, f := range now {
		if j := slices.IndexFunc(before, func(b store.Finding) bool { return sameFinding(b, f) }); j >= 0 {
			now[i].Since = before[j].Since
		}
	}
}

// sameFinding leaves out figures in the detail, such as free memory, which always change: each
// change is a write.
func sameFinding(a, b store.Finding) bool {
	return a.Check == b.Check && a.Status == b.Status && a.Fix == b.Fix && withoutFigures(a.Detail) == withoutFigures(b.Detail)
}

func withoutFigures(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}
