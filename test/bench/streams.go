package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// streams measures what streams: logs, port-forwards, copies; and the commands of one Runner beside
// others' streams and loads.
type streams struct {
	Apps    int `flag:"apps" usual:"10" short:"2" help:"Apps that log numbered lines"`
	Streams int `flag:"streams" usual:"20" short:"10" help:"readers that follow each App's log"`
	Seconds int `flag:"seconds" usual:"600" short:"20" help:"how long they follow"`
	Lines   int `flag:"lines" usual:"40" help:"lines that each App logs a second"`
	Line    int `flag:"line-size" usual:"1000" help:"bytes of a line"`
	Bytes   int `flag:"bytes" usual:"1073741824" short:"67108864" help:"bytes to forward and to copy, each way"`
	Flood   int `flag:"flood" usual:"4000" help:"lines a second of the pod that floods"`
	Rounds  int `flag:"rounds" usual:"5" short:"2" help:"rounds of commands without and with a stalled reader"`
	Creates int `flag:"creates" usual:"2000" short:"100" help:"objects to create by the Kubernetes API in each round"`
	Patches int `flag:"patches" usual:"200" short:"50" help:"patches of them"`
	Inside  int `flag:"inside" usual:"20" short:"5" help:"commands and forwarded ports that are open when the other side goes"`

	rig
	image string
}

const (
	agentMetricsPort = "9090"
	streamsNamespace = "streams"
	bytesPort        = 9000
	moved            = "/data"
	// sampleInterval is how often the agent's memory is measured.
	sampleInterval = time.Second / 4
)

// The Apps beside those that log.
var (
	floods = runnerapi.Key{Namespace: streamsNamespace, Name: "floods"}
	moves  = runnerapi.Key{Namespace: streamsNamespace, Name: "moves"}
)

func logs(i int) runnerapi.Key { return named(streamsNamespace, "logs", i) }

func (b *streams) Measure(ctx context.Context, r *run.Run) {
	b.begin(ctx, r, harness.Options{Kubernetes: cluster.Options{WithoutMetrics: true}}, neighbour)
	r.Step(fmt.Sprintf("%d Apps that log, one that floods, one that moves bytes", b.Apps), func() { b.fill(ctx) })
	r.Step("50 commands a second without and with a stalled reader", func() { b.measureStalled(ctx) })
	r.Step("50 commands a second alone and beside another Runner's loads", func() { b.measureTenants(ctx) })
	r.Step(fmt.Sprintf("%d followed logs for %d s", b.Apps*b.Streams, b.Seconds), func() { b.measureLogs(ctx) })
	r.Step(fmt.Sprintf("%d MiB each way", b.Bytes>>20), func() { b.measureBytes(ctx) })
	r.Step(fmt.Sprintf("%d creates and %d patches by the Kubernetes API", b.Creates, b.Patches), func() { b.measureWrites(ctx) })
	r.Step(fmt.Sprintf("%d stalled readers at once", crowd), func() { b.measureCrowd(ctx) })
	r.Step("who goes takes the streams along", func() { b.measureEnds(ctx) })
}

// fill deploys the Apps. They are of one image whose program is called tar, and can do what
// is needed of that.
func (b *streams) fill(ctx context.Context) {
	b.image = run.Must(b.sys.Cluster.LoadProgram(ctx, cluster.Program{Package: "./test/apps/hello", Name: "tar", Ref: "apps.test/tar"}))
	b.prepareAgent(ctx)
	b.namespace(ctx, streamsNamespace)
	for i := range b.Apps {
		b.deploy(ctx, logs(i), b.logging(b.Lines))
	}
	b.deploy(ctx, floods, b.logging(b.Flood))
	mover := b.app("-bytes-listen", fmt.Sprintf(":%d", bytesPort))
	mover.Volumes = []runnerapi.Volume{{Name: "data", MountPath: moved, EmptyDir: &runnerapi.EmptyDir{}}}
	b.deploy(ctx, moves, mover)
}

func (b *streams) app(args ...string) runnerapi.AppSpec {
	return runnerapi.AppSpec{Image: b.image, Args: args, GraceSeconds: new(int64(0))}
}

func (b *streams) logging(lines int) runnerapi.AppSpec {
	return b.app("-lines", fmt.Sprint(lines), "-line-size", fmt.Sprint(b.Line))
}

// prepareAgent makes the policy that commands which reach into pods need, and the Secret while
// which exists the agent has its port of metrics open.
func (b *streams) prepareAgent(ctx context.Context) {
	run.Must(b.kube.CoreV1().Secrets("pipeops").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "pipeops-alerts"}, StringData: map[string]string{"token": "0123456789abcdef0123456789abcdef"},
	}, metav1.CreateOptions{}))
	run.Must(b.kube.CoreV1().ConfigMaps("pipeops").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"},
		Data:       map[string]string{"policy.yaml": "rules:\n- name: inside\n  commands: [exec-app, port-forward-app]\n- name: all\n"},
	}, metav1.CreateOptions{}))
	b.Await(ctx, time.Minute, tick, func() {
		if c := run.Must(b.client.Cluster().Get(ctx)); c.Policy == nil || c.Policy.State != "active" {
			run.Failf("the policy does not hold yet")
		}
	})
	b.Await(ctx, startTimeout*3, tick, func() { b.number(ctx, callsOpen) }) // the kubelet brings the Secret late
}

// watchMemory samples the agent's memory, in MiB, until the returned function is called.
func (b *streams) watchMemory(ctx context.Context) (end func() []float64) {
	var samples []float64
	var failed error
	sample := func() {
		n, err := b.sys.AgentMemory(ctx)
		samples, failed = append(samples, run.Mebibytes(n)), errors.Join(failed, err)
	}
	sample()
	stop := b.Every(sampleInterval, sample)
	return func() []float64 {
		stop()
		sample()
		run.Check(failed)
		return samples
	}
}

// growth returns how much the highest sample of the second half exceeds that of the first.
func growth(samples []float64) float64 {
	half := len(samples) / 2
	return slices.Max(samples[half:]) - slices.Max(samples[:half])
}

// The agent's metrics that are used.
const (
	callsOpen  = "pipeops_agent_calls_open"
	goroutines = "go_goroutines"
	logsEnded  = `pipeops_agent_command_duration_seconds_count{call="get-app-logs",code="2xx"}`
	logsFailed = `pipeops_agent_command_duration_seconds_count{call="get-app-logs",code="5xx"}`
)

// number returns the sum of some of the agent's metrics.
func (b *streams) number(ctx context.Context, names ...string) (sum float64) {
	pod := run.Must(b.sys.AgentPod(ctx))
	text := run.Must(b.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, agentMetricsPort, "/metrics", nil).DoRaw(ctx))
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		if name, value, _ := strings.Cut(scan.Text(), " "); slices.Contains(names, name) {
			sum += run.Must(strconv.ParseFloat(value, 64))
		}
	}
	return sum
}

// awaitNumber waits until a metric is not more than that. It returns the value, also if the wait
// times out.
func (b *streams) awaitNumber(ctx context.Context, within time.Duration, name string, most float64) (n float64) {
	_ = run.Try(func() {
		b.Await(ctx, within, tick, func() {
			if n = b.number(ctx, name); n > most {
				run.Failf("%s is %v", name, n)
			}
		})
	})
	run.Check(ctx.Err())
	return n
}
