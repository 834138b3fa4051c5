package agent

import (
	"crypto/rand"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/agent/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// compose makes the parts that keep the agent registered and connected. seen knows whether the
// Kubernetes API responds.
func (a *Agent) compose(seen *clusterSeen) {
	c := a.opts.Config
	cluster := &clusterID{kube: a.kube, replica: a.replica, log: a.log}
	store := &identityStore{Store: a.kube.IdentityStore(), replica: a.replica, health: a.health, log: a.log}
	if c.StateDir != "" {
		store.Store = identity.File{Dir: c.StateDir}
	}
	a.current = &currentIdentity{now: a.now, health: a.health, fresh: wake.New()}
	a.clients = &clients{config: c, now: a.now, log: a.log, cluster: cluster, current: a.current}
	a.enrolment = &enrolment{
		opts: a.opts, now: a.now, log: a.log, health: a.health, kube: a.kube,
		cluster: cluster, store: store, current: a.current, clients: a.clients,
	}
	a.renewal = &renewal{
		check: a.opts.RenewalCheck, now: a.now, log: a.log, store: store, current: a.current, beat: a.beat, hurry: wake.New(),
		ended: a.enrolment.ended,
	}
	nodes := &tunnelNodes{store: store, current: a.current, now: a.now, log: a.log}
	a.tunnels = &tunnels{
		config: c, replica: a.replica, log: a.log, health: a.health, cluster: cluster,
		current: a.current, clients: a.clients, nodes: nodes, news: a.news, beat: a.beat,
	}
	a.updates = &selfUpdate{
		opts: a.opts, now: a.now, started: a.now(), log: a.log, kube: a.kube, health: a.health, beat: a.beat,
	}
	a.checkup = &checkup{beat: a.beat, due: wake.New(), opts: doctor.Options{
		Config: c, Kubernetes: a.opts.Kubernetes, Version: a.opts.Version, ReleaseKeys: a.opts.ReleaseKeys, Now: a.now,
	}}
	a.visitors = &visitors.SignIn{Changed: a.routes.Soon}
	a.heartbeats = &heartbeats{
		observer: observer{
			version: a.opts.Version, replica: a.replica, now: a.now, kube: a.kube, cluster: cluster,
			cas:     &caRotation{store: store, current: a.current, renewal: a.renewal, beat: a.beat, log: a.log},
			updates: a.updates, components: a.componentStates, checkup: a.checkup, seen: seen,
		},
		tracer: a.opts.Tracer, log: a.log, store: store, current: a.current, nodes: nodes, news: a.news,
		instruments: a.instruments, health: a.health, beat: a.beat, process: rand.Text(),
		ended: a.enrolment.ended, visitors: a.visitors,
	}
}
