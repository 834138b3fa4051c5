package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// streamSize is how much is streamed, and for how long.
type streamSize struct {
	Apps    int
	Streams int
	Seconds float64
	Lines   int
	Line    int
	Bytes   int64
	Flood   int
	Rounds  int
	Inside  int
}

func (s streamSize) String() string {
	return fmt.Sprintf("%d followed logs for %.0f s, %d MiB each way", s.Apps*s.Streams, s.Seconds, s.Bytes>>20)
}

// measureStreams measures what streams: logs, port-forwards, copies. Its flags follow the word.
func measureStreams(ctx context.Context) error {
	var s streamSize
	flags := flag.CommandLine
	flags.IntVar(&s.Apps, "apps", 10, "Apps that log numbered lines")
	flags.IntVar(&s.Streams, "streams", 20, "readers that follow each App's log")
	flags.Float64Var(&s.Seconds, "seconds", 600, "how long they follow")
	flags.IntVar(&s.Lines, "lines", 40, "lines that each App logs a second")
	flags.IntVar(&s.Line, "line-size", 1000, "bytes of a line")
	flags.Int64Var(&s.Bytes, "bytes", 1<<30, "bytes to forward and to copy, each way")
	flags.IntVar(&s.Flood, "flood", 4000, "lines a second of the pod that floods")
	flags.IntVar(&s.Rounds, "rounds", 5, "rounds of commands without and with a stalled reader")
	flags.IntVar(&s.Inside, "inside", 20, "commands and forwarded ports that are open when the other side goes")
	end := endFlags()
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	if s.Apps < 1 || s.Streams < 1 || s.Seconds < 1 || s.Lines < 1 || s.Bytes < 1 || s.Flood < 1 || s.Rounds < 1 || s.Inside < 1 {
		return errors.New("all sizes have to be 1 or more")
	}
	rig, err := newRig(ctx, figures.Streams, end.output)
	if err != nil {
		return err
	}
	b := &streams{streamSize: s, rig: rig}
	return b.finish(ctx, b.perform(ctx), s, end)
}

// streams is one run.
type streams struct {
	streamSize
	*rig
	image string
}

func (b *streams) perform(ctx context.Context) error {
	return b.all(ctx, []stage{
		{"build the programs", func(ctx context.Context) error { return b.build(ctx, streamsSystem()) }},
		{"a Kubernetes", b.kubernetes},
		{"RabbitMQ, the control plane, the agent", b.agent},
		{fmt.Sprintf("%d Apps that log, one that floods, one that moves bytes", b.Apps), b.fill},
		{fmt.Sprintf("50 commands a second without and with a stalled reader, %d times", b.Rounds), b.measureStalled},
		{fmt.Sprintf("%d followed logs for %.0f s", b.Apps*b.Streams, b.Seconds), b.measureLogs},
		{fmt.Sprintf("%d MiB each way", b.Bytes>>20), b.measureBytes},
		{fmt.Sprintf("%d stalled readers at once", crowd), b.measureCrowd},
		{"who goes takes the streams along", b.measureEnds},
	})
}

const agentMetricsPort = "9090"

func streamsSystem() harness.Options {
	return harness.Options{
		Kubernetes:    cluster.Options{WithoutMetrics: true},
		AgentSettings: map[string]string{"PIPEOPS_METRICS_ADDRESS": ":" + agentMetricsPort},
	}
}

const streamsNamespace = "streams"

// The Apps beside those that log.
var (
	floods = runnerapi.Key{Namespace: streamsNamespace, Name: "floods"}
	moves  = runnerapi.Key{Namespace: streamsNamespace, Name: "moves"}
)

const (
	bytesPort = 9000
	moved     = "/data"
)

func logs(i int) runnerapi.Key {
	return runnerapi.Key{Namespace: streamsNamespace, Name: fmt.Sprintf("logs-%d", i)}
}

// fill deploys the Apps. They are of one image whose program is called tar, and can do what
// is needed of that.
func (b *streams) fill(ctx context.Context) (err error) {
	b.image, err = b.sys.Cluster.LoadProgram(ctx, cluster.Program{Package: "./test/apps/hello", Name: "tar", Ref: "apps.test/tar"})
	if err != nil {
		return err
	}
	if err := b.allowAll(ctx); err != nil {
		return err
	}
	if _, err := b.client.Namespaces().Set(ctx, streamsNamespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{}); err != nil {
		return err
	}
	for i := range b.Apps {
		if err := b.deploy(ctx, logs(i), b.logging(b.Lines)); err != nil {
			return err
		}
	}
	if err := b.deploy(ctx, floods, b.logging(b.Flood)); err != nil {
		return err
	}
	mover := b.app("-bytes-listen", fmt.Sprintf(":%d", bytesPort))
	mover.Volumes = []runnerapi.Volume{{Name: "data", MountPath: moved, EmptyDir: &runnerapi.EmptyDir{}}}
	return b.deploy(ctx, moves, mover)
}

func (b *streams) app(args ...string) runnerapi.AppSpec {
	return runnerapi.AppSpec{Image: b.image, Args: args, GraceSeconds: new(int64(0))}
}

func (b *streams) logging(lines int) runnerapi.AppSpec {
	return b.app("-lines", fmt.Sprint(lines), "-line-size", fmt.Sprint(b.Line))
}

func (b *streams) deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec) error {
	app, err := b.client.Apps().Deploy(ctx, key, spec, runnerapi.WriteOptions{})
	if err != nil {
		return err
	}
	return b.awaitRollout(ctx, key, app.Generation)
}

// allowAll returns the policy that commands which reach into pods need.
func (b *streams) allowAll(ctx context.Context) error {
	policy := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"},
		Data:       map[string]string{"policy.yaml": "rules:\n- name: inside\n  commands: [exec-app, port-forward-app]\n- name: all\n"},
	}
	if _, err := b.kube.CoreV1().ConfigMaps("pipeops").Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return harness.Eventually(ctx, "the policy holds", func(ctx context.Context) error {
		cluster, err := b.client.Cluster().Get(ctx)
		if err == nil && (cluster.Policy == nil || cluster.Policy.State != "active") {
			err = errors.New("it does not yet")
		}
		return err
	})
}

// wait returns until a time has passed; it ends early with ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
