package controlplane

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
)

// hostname returns the name of the machine or pod.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "controlplane"
	}
	return name
}

// replicas returns all control planes that serve the database.
func (c *ControlPlane) replicas(ctx context.Context) []peerlink.Replica {
	if c.peers != nil {
		return c.peers.Replicas(ctx)
	}
	own := c.report(ctx)
	own.Answers = true
	return []peerlink.Replica{own}
}

// report returns what this control plane reports of itself.
func (c *ControlPlane) report(ctx context.Context) peerlink.Replica {
	found := c.health.readiness(ctx)
	return peerlink.Replica{
		Name: hostname(), Version: c.cfg.Version, StartedAt: c.startedAt, Tunnel: c.cfg.AdvertiseTunnel, Edge: c.cfg.AdvertiseEdge,
		State: found.state(), Leads: c.peers == nil || c.leader.Leads(), Agents: c.tunnels.own.Stats().Agents, Checks: found.list(),
	}
}

func (r *readiness) state() string {
	switch {
	case !r.Ready:
		return peerlink.NotReady
	case r.Degraded:
		return peerlink.Degraded
	}
	return peerlink.Ready
}

// list returns the checks, failed ones first. A check that has no outcome is only information.
func (r *readiness) list() []peerlink.Check {
	list := make([]peerlink.Check, 0, len(r.Checks))
	for name, text := range r.Checks {
		ok, judged := r.ok[name]
		text = strings.TrimPrefix(strings.TrimPrefix(text, "ok: "), "failed: ")
		list = append(list, peerlink.Check{Name: name, OK: ok || !judged, Text: text})
	}
	slices.SortFunc(list, func(a, b peerlink.Check) int {
		if a.OK != b.OK {
			return map[bool]int{false: -1, true: 1}[a.OK]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return list
}
