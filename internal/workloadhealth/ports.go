package workloadhealth

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
)

const (
	// triedPods bounds the pods of one workload whose ports are tried at one look at it.
	triedPods = 3
	// mutePorts is how often a pod is tried that can be reached in no way.
	mutePorts = 3
	// knownPods bounds of how many pods it is remembered that they need no further try.
	knownPods = 5000
)

// ports tries the TCP ports that workloads declare and that no probe looks at. Of a pod all of
// whose ports accepted a connection once, it remembers that.
type ports struct {
	reach podport.Reach

	mu   sync.Mutex
	mute map[types.UID]int // tries without a result; mutePorts for a pod that is no longer tried
}

// of returns what tries of the pods' ports got, and the container of a port at which nothing
// listens.
func (p *ports) of(ctx context.Context, ev *diagnose.Evidence, now func() time.Time) (map[types.UID]diagnose.PortTry, string) {
	if ev.Spec.Type.Runs() {
		return nil, ""
	}
	tries, container, left := map[types.UID]diagnose.PortTry{}, "", triedPods
	for _, pod := range ev.Pods {
		declared := diagnose.DeclaredPorts(pod)
		if _, ready := ev.Stabilization.ListensBy(pod); len(declared) == 0 || !ready || !p.wanted(pod) {
			continue
		}
		if left--; left < 0 {
			break
		}
		try, in := p.try(ctx, pod, declared)
		try.At = now()
		if tries[pod.UID] = try; container == "" {
			container = in
		}
	}
	return tries, container
}

func (p *ports) wanted(pod *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute[pod.UID] < mutePorts
}

// try tries the ports of a pod. Where one is open, others may be off: metrics of a chart, for
// example.
func (p *ports) try(ctx context.Context, pod *corev1.Pod, declared []diagnose.DeclaredPort) (got diagnose.PortTry, container string) {
	mute, open := false, false
	var refused diagnose.DeclaredPort
	for _, port := range declared {
		switch p.reach.Port(ctx, pod, port.Number) {
		case podport.Refused:
			refused = port
		case podport.Loopback:
			got.Loopback = port.Number
		case podport.Mute:
			mute = true
		case podport.Open:
			open = true
		}
	}
	switch {
	case refused.Number != 0 && open:
		return diagnose.PortTry{Idle: refused.Number}, refused.Container
	case refused.Number != 0:
		return diagnose.PortTry{Refused: refused.Number}, refused.Container
	}
	if ctx.Err() != nil {
		return got, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute == nil || len(p.mute) >= knownPods {
		p.mute = map[types.UID]int{}
	}
	if p.mute[pod.UID]++; !mute {
		p.mute[pod.UID] = mutePorts
	}
	return got, ""
}
