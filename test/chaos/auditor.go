package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

const (
	auditEvery = 3 * time.Second
	auditLimit = 200 // the maximum of one call
)

// auditor reads the agent's audit log as it grows: the log keeps only the last records.
type auditor struct {
	worker
	mu      sync.Mutex
	records []runnerapi.AuditRecord
	out     *json.Encoder // where they are stored for the analysis of a failed run
}

// follow reads until rest is closed. It retries later what cannot be read now.
func (a *auditor) follow(ctx context.Context, rest <-chan struct{}) {
	every(ctx, rest, auditEvery, func() { _ = a.read(ctx) })
}

// read reads all available records; an error means that it could not.
func (a *auditor) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return run.Try(func() {
		client := run.Must(a.reach())
		for {
			list := run.Must(client.Audit().List(ctx, a.last(), auditLimit))
			a.keep(list.Items)
			if len(list.Items) == 0 || a.last() >= list.Head.Seq {
				return
			}
		}
	})
}

func (a *auditor) keep(calls []runnerapi.AuditCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range calls {
		a.records = append(a.records, c.AuditRecord)
		run.Check(a.out.Encode(c.AuditRecord))
	}
}

func (a *auditor) last() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.records) == 0 {
		return 0
	}
	return a.records[len(a.records)-1].Seq
}

func (a *auditor) all() []runnerapi.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]runnerapi.AuditRecord(nil), a.records...)
}

// allAudited fails with what is missing in the log: a record is stored a moment after its command
// was answered.
func (c *chaos) allAudited(ctx context.Context) {
	run.Check(c.auditor.read(ctx))
	missing, _ := c.audited(run.Must(c.ledger.Commands()))
	run.Check(errors.Join(asErrors(missing)...))
}

// audited compares the log with the ledger, as far as the log was read.
func (c *chaos) audited(commands []ledger.Command) (problems []string, excused int) {
	var agents []string
	for _, a := range c.agents {
		agents = append(agents, a.name)
	}
	return ledger.Audited(commands, c.auditor.all(), c.kills.of(agents...))
}

// handedOver compares the end of the log with the control plane's.
func (c *chaos) handedOver(ctx context.Context) {
	run.Check(c.auditor.read(ctx))
	out := run.Must(c.operate(ctx, "agent", "audit", agentName, "--limit", "1"))
	if strings.Contains(out, "BROKEN") {
		run.Failf("the control plane says that the audit log is broken:\n%s", out)
	}
	if records := c.auditor.all(); len(records) > 0 {
		last := records[len(records)-1]
		if want := fmt.Sprintf("%d:%s", last.Seq, last.Hash); !strings.Contains(out, want) {
			run.Failf("the audit log ends with %s; the control plane has:\n%s", want, out)
		}
	}
}

// verifyAudit verifies the log with the agent's own program.
func (c *chaos) verifyAudit(ctx context.Context) (string, error) {
	return c.sys.Agent(ctx, []string{"KUBECONFIG=" + c.kubeconfig()}, "audit", "verify")
}
