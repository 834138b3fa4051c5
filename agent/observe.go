package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// observeTimeout bounds reading the cluster's figures. A heartbeat without them shows that the
// agent lives, and its answer names the revoked Runners.
const observeTimeout = 10 * time.Second

// observer observes what a heartbeat reports.
type observer struct {
	version    string
	replica    string
	now        func() time.Time
	kube       *kube.Client
	cluster    *clusterID
	cas        *caRotation
	updates    *selfUpdate
	components func(context.Context) []controlapi.Component
	checkup    *checkup
	seen       *clusterSeen
}

// observe returns what this replica reports. The leader reads the cluster's figures; the others
// only report that they are alive, and so does a leader while the Kubernetes API does not answer:
// the control plane keeps the last figures.
func (o *observer) observe(ctx context.Context, tun *tunnel.Set, leads bool) (controlapi.Heartbeat, error) {
	beat := controlapi.Heartbeat{
		Clock: o.now(), AgentVersion: o.version, RunnerAPIVersion: runnerAPIVersion,
		TunnelPhase: tunnelPhase(tun.Status()), Standby: !leads, CABundleHash: o.cas.reported(),
		Instance: o.replica,
	}
	o.cluster.try(ctx)
	if !leads {
		beat.Checks = o.outage()
		return beat, nil
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	facts, err := o.kube.Cluster().Facts(ctx)
	if err != nil && (ctx.Err() != nil || kube.Passing(err)) {
		beat.Standby, beat.Checks = true, o.outage()
		return beat, err
	}
	beat.Update = o.updates.status()
	beat.Components, beat.Checks = o.components(ctx), o.checkup.last.Load()
	beat.KubernetesVersion, beat.Distribution, beat.Provider = facts.KubernetesVersion, facts.Distribution, facts.Provider
	beat.Capacity = capacity(facts)
	return beat, err
}

// outage returns the finding that the Kubernetes API does not answer; nil while it does.
func (o *observer) outage() *controlapi.Checks {
	state := o.seen.state()
	if state == stateOK {
		return nil
	}
	return &controlapi.Checks{Findings: []controlapi.Finding{{
		Check: "kubernetes", Status: string(doctor.Failed), Detail: state,
		Fix: "start the cluster's API server; on its machine, `pipeops-agent doctor` has the details",
	}}}
}

// same reports whether two heartbeats describe the same state, apart from the clock and figures
// that always change.
func same(a, b controlapi.Heartbeat) bool {
	for _, h := range []*controlapi.Heartbeat{&a, &b} {
		h.Clock, h.Ticket, h.LastEvents, h.AcknowledgedLooks = time.Time{}, "", nil, 0
		h.Capacity.UsedCPUMillis, h.Capacity.UsedMemoryBytes = nil, nil
	}
	return reflect.DeepEqual(a, b)
}
