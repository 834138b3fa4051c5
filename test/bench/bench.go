package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	name = "bench" // of the system, its agent and its Runner
	// podsPerNode is what a simulated node has room for.
	podsPerNode = 250
	// closeTimeout bounds the clean-up.
	closeTimeout = 2 * time.Minute
)

// bench is one run: the system under way and what was measured of it.
type bench struct {
	size
	*progress
	results
	sys    *harness.System
	kube   kubernetes.Interface // without a limit on requests
	client *runnerapi.Client
	image  string
}

func (b *bench) perform(ctx context.Context) error {
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"build the programs", b.build},
		{fmt.Sprintf("a Kubernetes with %d simulated nodes", b.nodes()), b.kubernetes},
		{"RabbitMQ, the control plane, the agent", b.agent},
		{fmt.Sprintf("%d pods that are not the agent's", b.Unmanaged), b.fillUnmanaged},
		{fmt.Sprintf("%d Apps of %d pods, through the Runner API", b.Apps, b.Replicas), b.fillApps},
		{fmt.Sprintf("%d list calls", b.Lists), b.measureLists},
		{fmt.Sprintf("%d deploys of a changed spec", b.Deploys), b.measureDeploys},
		{fmt.Sprintf("from the deploy to the ready pod, %d times in each way", b.Rounds), b.measureReady},
		{"the agent's memory, and again after a restart", b.measureMemory},
	} {
		if err := b.step(step.title, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build(ctx context.Context) (err error) {
	b.sys, err = harness.New(harness.Options{
		Name: name, Out: os.Stdout, AgentLogLevel: "info",
		// metrics-server would ask nodes that are not there.
		Kubernetes: cluster.Options{SimulatedNodes: b.nodes(), WithoutMetrics: true},
	})
	if err != nil {
		return err
	}
	b.sys.Binaries, err = harness.Build(ctx)
	return err
}

func (b *bench) kubernetes(ctx context.Context) error {
	if err := b.sys.StartKubernetes(ctx); err != nil {
		return err
	}
	config := rest.CopyConfig(b.sys.Kube.Config)
	config.QPS, config.Burst = -1, 0
	var err error
	b.kube, err = kubernetes.NewForConfig(config)
	return err
}

func (b *bench) agent(ctx context.Context) error {
	if err := b.sys.StartBroker(ctx); err != nil {
		return err
	}
	if err := b.sys.StartControlPlane(ctx); err != nil {
		return err
	}
	if _, err := b.sys.CreateRunner(ctx, name); err != nil {
		return err
	}
	token, err := b.sys.CreateToken(ctx)
	if err != nil {
		return err
	}
	if err := b.sys.DeployAgent(ctx, name, token); err != nil {
		return err
	}
	if b.image, err = b.sys.LoadApp(ctx, "hello"); err != nil {
		return err
	}
	b.client, err = b.sys.Dial(ctx, name, name)
	return err
}

// close takes everything down. It does not hang on what is broken.
func (b *bench) close() error {
	if b.sys == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if b.client != nil {
		b.client.Close()
	}
	return b.sys.Close(ctx)
}
