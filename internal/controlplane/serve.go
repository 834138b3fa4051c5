package controlplane

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/internal/sdnotify"
)

// start restores the state of the last run.
func (c *ControlPlane) start(ctx context.Context) error {
	if err := c.refresher.Begin(ctx); err != nil || c.peers != nil { // else the leader does it
		return err
	}
	agents, err := c.store.Agents(ctx)
	if err != nil {
		return err
	}
	c.liveness.Resume(agents, c.cfg.StartGrace)
	return c.directory.Move(ctx, c.store, agents, c.cfg.AdvertiseEdge, c.cfg.Now)
}

func (c *ControlPlane) serve(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	router := edge.New(edge.Config{Domain: c.cfg.AgentsDomain, Handover: c.tunnels.reach, Log: c.cfg.Log})
	var users sync.WaitGroup // of tunnels
	tunnels, endTunnels := context.WithCancel(context.WithoutCancel(ctx))
	defer endTunnels()
	users.Add(1) // until all have begun
	group.Go(func() error {
		<-running.Done()
		users.Wait()
		c.peers.Close()
		endTunnels()
		return nil
	})
	group.Go(func() error { return c.api.serveAPI(running, tunnels, c.listeners.api) })
	group.Go(func() error { return c.tunnels.own.Serve(tunnels, c.listeners.tunnel) })
	group.Go(func() error { return c.api.serveTunnelCalls(running) })
	users.Add(1)
	group.Go(func() error {
		defer users.Done()
		return router.Serve(running, c.listeners.edge)
	})
	group.Go(func() error { return c.leader.Run(running, c.store) })
	c.servePeers(running, group)
	c.serveGateway(running, group, &users)
	users.Done()
	group.Go(func() error {
		return c.store.Watch(running, time.Second, func() {
			c.tunnels.look.Raise()
			c.refresher.Look()
			c.upkeep.Look()
			c.public.look()
			c.webhooks.Look()
		})
	})
	group.Go(func() error { return c.tunnels.endRevoked(running) })
	group.Go(func() error { return c.refresher.Run(running) })
	group.Go(func() error { return c.receivers.Run(running) })
	group.Go(func() error { return c.leader.While(running, c.clean) })
	group.Go(func() error { return c.fleet.Run(running) })
	group.Go(func() error { return c.leader.While(running, c.webhooks.Run) }) // in one process at a time
	group.Go(func() error { return c.upkeep.Run(running) })
	group.Go(func() error { return c.operators.Run(running) })
	group.Go(func() error { return c.local.serve(running) })
	group.Go(func() error { return c.console.Run(running) })
	group.Go(func() error { return c.leader.While(running, c.outbox.Run) })
	group.Go(func() error { return c.ports.Run(running) })
	if c.broker != nil {
		group.Go(func() error { return c.broker.Run(running) })
	}
	c.serving.Store(true)
	defer c.serving.Store(false)
	defer sdnotify.Start(ctx, c.health.status, c.cfg.Log)()
	c.cfg.Log.Info().Str("api", c.cfg.AdvertiseAPI).Str("tunnel", c.cfg.AdvertiseTunnel).Str("edge", c.cfg.AdvertiseEdge).Msg("control plane is serving")
	return group.Wait()
}
