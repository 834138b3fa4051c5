package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// measureMemory reads what the agent's process has and has had resident, then
// ends it as a crash would, and looks how it comes back to a full cluster.
func (b *bench) measureMemory(ctx context.Context) error {
	if err := b.neverRestarted(ctx); err != nil {
		return err
	}
	if err := b.addMemory(ctx, ""); err != nil {
		return err
	}
	if err := b.sys.KillAgent(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := b.sys.AwaitAgent(ctx); err != nil {
		return err
	}
	if err := b.awaitServed(ctx); err != nil {
		return err
	}
	b.set.Add("restart_seconds", time.Since(start).Seconds())
	return b.addMemory(ctx, "restart_")
}

// neverRestarted fails if the agent has restarted: the current memory of its process would then
// mean nothing.
func (b *rig) neverRestarted(ctx context.Context) error {
	pod, err := b.sys.AgentPod(ctx)
	if err != nil {
		return err
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.RestartCount > 0 {
			return fmt.Errorf("the agent has restarted %d times: what its process has now says nothing; its log:\n%s",
				c.RestartCount, b.sys.AgentLog(ctx, 20))
		}
	}
	return nil
}

func (b *rig) addMemory(ctx context.Context, prefix string) error {
	now, err := b.sys.AgentMemory(ctx)
	if err != nil {
		return err
	}
	peak, err := b.sys.AgentPeakMemory(ctx)
	if err != nil {
		return err
	}
	b.set.Add(prefix+"memory_now", mebibytes(now))
	b.set.Add(prefix+"memory_peak", mebibytes(peak))
	return nil
}

// awaitServed waits until the agent returns all Apps again.
func (b *bench) awaitServed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return harness.Eventually(ctx, "the agent serves", func(ctx context.Context) error {
		apps, err := b.client.Apps().List(ctx, "")
		if err == nil && len(apps) < b.Apps {
			err = fmt.Errorf("it knows %d Apps of %d", len(apps), b.Apps)
		}
		return err
	})
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
