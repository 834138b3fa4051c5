package main

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	name = "bench" // of the system, its agent and its Runner
	// closeTimeout bounds the clean-up.
	closeTimeout = 2 * time.Minute
)

// rig is what every run has: the system, what is printed of it and what was measured.
type rig struct {
	*progress
	set    *figures.Run
	sys    *harness.System
	kube   kubernetes.Interface // without a limit on requests
	client *client.Client
}

func newRig(ctx context.Context, p *figures.Part, o figures.Output) (*rig, error) {
	run, err := figures.Begin(ctx, p, o, false)
	if err != nil {
		return nil, err
	}
	run.Machine.Kubernetes = cluster.KubernetesVersion
	return &rig{progress: &progress{out: os.Stdout, start: time.Now()}, set: run}, nil
}

// build makes the system; name, output and what its agent logs are the same for all.
func (b *rig) build(ctx context.Context, options harness.Options) (err error) {
	options.Name, options.Out, options.AgentLogLevel = name, os.Stdout, "info"
	if b.sys, err = harness.New(options); err != nil {
		return err
	}
	b.sys.Binaries, err = harness.Build(ctx)
	return err
}

func (b *rig) kubernetes(ctx context.Context) error {
	if err := b.sys.StartKubernetes(ctx); err != nil {
		return err
	}
	config := rest.CopyConfig(b.sys.Kube.Config)
	config.QPS, config.Burst = -1, 0
	var err error
	b.kube, err = kubernetes.NewForConfig(config)
	return err
}

func (b *rig) agent(ctx context.Context) error {
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
	b.client, err = b.sys.Dial(ctx, name, name)
	return err
}

// close takes everything down. It does not hang on what is broken.
func (b *rig) close() error {
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
