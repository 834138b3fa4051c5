package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	name = "bench" // of the system, its agent and its Runner
	// seenTimeout is how long a requested change may take to be seen.
	seenTimeout = 2 * time.Minute
	// tick is the interval of attempts.
	tick = 50 * time.Millisecond
)

// write are the options of all changes.
var write runnerapi.WriteOptions

// rig is what every part has: the run and the system in progress.
type rig struct {
	*run.Run
	sys    *harness.System
	kube   kubernetes.Interface // without a limit on requests
	client *client.Client
}

// begin brings up the system. Its name, output and what its agent logs are the same for all.
// runners has the names of other Runners than its own.
func (b *rig) begin(ctx context.Context, r *run.Run, options harness.Options, runners ...string) {
	b.Run = r
	r.Kubernetes = cluster.KubernetesVersion
	options.Name, options.Out, options.AgentLogLevel = name, os.Stdout, "info"
	b.sys = run.Must(harness.New(options))
	r.OnCloseWithin(b.sys.Close)
	r.Step("build the programs", func() { b.sys.Binaries = run.Must(harness.Build(ctx)) })
	r.Step("a Kubernetes", func() {
		run.Check(b.sys.StartKubernetes(ctx))
		config := rest.CopyConfig(b.sys.Kube.Config)
		config.QPS, config.Burst = -1, 0
		b.kube = run.Must(kubernetes.NewForConfig(config))
	})
	r.Step("RabbitMQ, the control plane, the agent", func() {
		run.Check(b.sys.StartBroker(ctx))
		run.Check(b.sys.StartProduct(ctx, name, append(runners, name)...))
		b.client = run.Must(b.sys.Dial(ctx, name, name))
		r.OnClose(func() error { b.client.Close(); return nil })
	})
}

func (b *rig) namespace(ctx context.Context, name string) {
	run.Must(b.client.Namespaces().Set(ctx, name, runnerapi.NamespaceSpec{}, write))
}

// deploy deploys an App, and waits until it is healthy.
func (b *rig) deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec) {
	b.awaitRollout(ctx, key, run.Must(b.client.Apps().Deploy(ctx, key, spec, write)).Generation)
}

// awaitRollout waits until all pods of an App run its newest spec.
func (b *rig) awaitRollout(ctx context.Context, key runnerapi.Key, generation int64) {
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	if app := run.Must(b.client.Apps().Wait(ctx, key, generation)); app.Status.Phase != runnerapi.PhaseHealthy {
		run.Failf("App %s is %s, not healthy", key, app.Status.Phase)
	}
}

// neverRestarted fails if the agent has restarted: the current memory of its process would then
// mean nothing.
func (b *rig) neverRestarted(ctx context.Context) {
	for _, c := range run.Must(b.sys.AgentPod(ctx)).Status.ContainerStatuses {
		if c.RestartCount > 0 {
			run.Failf("the agent has restarted %d times: what its process has now says nothing; its log:\n%s",
				c.RestartCount, b.sys.AgentLog(ctx, 20))
		}
	}
}

// seen waits for the watched change and returns when it was reported.
type seen func(context.Context) time.Time

// await records the time when an event fits, also before the result is requested.
func await(w watch.Interface, fits func(runtime.Object) bool) seen {
	at := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if fits(event.Object) {
				at <- time.Now()
				return
			}
		}
	}()
	return func(ctx context.Context) (when time.Time) {
		select {
		case when = <-at:
		case <-time.After(seenTimeout):
			w.Stop()
			run.Failf("a change was not seen within %s", seenTimeout)
		case <-ctx.Done():
			run.Check(ctx.Err())
		}
		return when
	}
}

// named returns the Apps' keys, of a namespace.
func named(namespace, name string, i int) runnerapi.Key {
	return runnerapi.Key{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i)}
}
