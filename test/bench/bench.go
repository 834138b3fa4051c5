package main

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// podsPerNode is what a simulated node has room for.
const podsPerNode = 250

// bench is one run: the system under way and what was measured of it.
type bench struct {
	size
	*rig
	image string
}

func (b *bench) perform(ctx context.Context) error {
	return b.all(ctx, []stage{
		{"build the programs", func(ctx context.Context) error { return b.build(ctx, b.options()) }},
		{fmt.Sprintf("a Kubernetes with %d simulated nodes", b.nodes()), b.kubernetes},
		{"RabbitMQ, the control plane, the agent", b.agent},
		{"the Apps' image", b.load},
		{fmt.Sprintf("%d pods that are not the agent's", b.Unmanaged), b.fillUnmanaged},
		{fmt.Sprintf("%d Apps of %d pods, through the Runner API", b.Apps, b.Replicas), b.fillApps},
		{fmt.Sprintf("%d list calls", b.Lists), b.measureLists},
		{fmt.Sprintf("%d deploys of a changed spec", b.Deploys), b.measureDeploys},
		{fmt.Sprintf("from the deploy to the ready pod, %d times in each way", b.Rounds), b.measureReady},
		{"the agent's memory, and again after a restart", b.measureMemory},
	})
}

func (b *bench) options() harness.Options {
	// metrics-server would ask nodes that are not there.
	return harness.Options{Kubernetes: cluster.Options{SimulatedNodes: b.nodes(), WithoutMetrics: true}}
}

func (b *bench) load(ctx context.Context) (err error) {
	b.image, err = b.sys.LoadApp(ctx, "hello")
	return err
}
