package agent

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// checksInterval is how often a leader examines itself: each time it asks for each of its
	// rights.
	checksInterval = 15 * time.Minute
	// maxCheckText leaves room for what marks a shortened text.
	maxCheckText = controlapi.MaxFindingDetail - 12
)

// checkup repeats checks of `pipeops-agent doctor` for the control plane's operator. It needs no
// right that the agent lacks.
type checkup struct {
	opts doctor.Options
	due  wake.Signal // this replica leads
	beat wake.Signal
	last atomic.Pointer[controlapi.Checks]
}

// run examines the agent while this replica leads, until ctx ends.
func (c *checkup) run(ctx context.Context, leads func() bool) error {
	for c.due.WaitFor(ctx, retry.Jitter(checksInterval)) {
		if !leads() {
			continue
		}
		report := doctor.ExamineRunning(ctx, c.opts)
		if ctx.Err() == nil { // or everything has failed
			c.last.Store(checksOf(report))
			c.beat.Raise()
		}
	}
	return nil
}

// checksOf returns what is wrong in a report, failures first.
func checksOf(r doctor.Report) *controlapi.Checks {
	checks := &controlapi.Checks{}
	for _, f := range r.Findings {
		if f.Status != doctor.Failed && f.Status != doctor.Warning {
			continue
		}
		checks.Findings = append(checks.Findings, controlapi.Finding{
			Check: f.Check, Status: string(f.Status), Fix: printable.Shorten(printable.Text(f.Fix), maxCheckText),
			Detail: cmp.Or(printable.Shorten(printable.Text(f.Detail), maxCheckText), "no detail"),
		})
	}
	slices.SortStableFunc(checks.Findings, func(a, b controlapi.Finding) int { return cmp.Compare(a.Status, b.Status) })
	checks.Findings = checks.Findings[:min(len(checks.Findings), controlapi.MaxFindings)]
	return checks
}
