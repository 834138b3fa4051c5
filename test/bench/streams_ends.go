package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// jobTime is how long a Job runs whose log is followed.
const jobTime = 5 * time.Second

// measureEnds ends one side, and measures when the other side notices. The followers of 200 logs
// have already been measured.
func (b *streams) measureEnds(ctx context.Context) {
	measure := func(id string, end func(context.Context) float64) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		b.Add(id, end(ctx))
	}
	measure("inside_caller_gone", b.callersGo)
	measure("commands_process_gone", func(ctx context.Context) float64 { return b.processGoes(ctx, b.commandInside, b.removed) })
	measure("ports_process_gone", func(ctx context.Context) float64 { return b.processGoes(ctx, b.portInside, killed) })
	measure("logs_app_gone", b.appGoes)
	measure("logs_job_done", b.jobEnds)
}

// ends are the moments at which streams ended; it has room for one of each.
type ends chan time.Time

// note records when do ends.
func (e ends) note(do func()) {
	go func() {
		do()
		e <- time.Now()
	}()
}

// after returns how long after a moment the last stream ended, in ms; 0 for those that ended before
// it.
func (e ends) after(ctx context.Context, from time.Time) (ms float64) {
	late := time.After(endTimeout)
	for range cap(e) {
		select {
		case at := <-e:
			ms = max(ms, run.Milliseconds(at.Sub(from)))
		case <-late:
			run.Failf("not all streams have ended")
		case <-ctx.Done():
			run.Check(ctx.Err())
		}
	}
	return ms
}

// portInside forwards a port that echoes, and has done so once.
func (b *streams) portInside(ctx context.Context, open ends) {
	conn := b.forward(ctx, "echo")
	ping(conn, conn)
	open.note(func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})
}

// commandInside runs a command that waits for input, and has answered once.
func (b *streams) commandInside(ctx context.Context, open ends) {
	in, toCommand := io.Pipe()
	fromCommand, out := io.Pipe()
	open.note(func() {
		_, err := b.client.Apps().Exec(ctx, moves, runnerapi.ExecOptions{Command: []string{"/tar", "-cat"}, Stdin: true},
			runnerapi.ExecStreams{Stdin: in, Stdout: out, Stderr: out})
		_ = in.Close()
		_ = out.CloseWithError(err) // for the reader that waits for the first answer
	})
	ping(fromCommand, toCommand)
}

// ping waits for the answer to a line.
func ping(from io.Reader, to io.Writer) {
	run.Must(io.WriteString(to, "ping\n"))
	run.Must(io.ReadFull(from, make([]byte, len("ping\n"))))
}

func (b *streams) callersGo(ctx context.Context) float64 {
	before := b.number(ctx, callsOpen)
	calling, leave := context.WithCancel(ctx)
	defer leave()
	open := make(ends, 2*b.Inside)
	for range b.Inside {
		b.portInside(calling, open)
		b.commandInside(calling, open)
	}
	if n := b.number(ctx, callsOpen); n != before+float64(cap(open)) {
		run.Failf("the agent has %v calls open, before it were %v", n, before)
	}
	start := time.Now()
	leave()
	if n := b.awaitNumber(ctx, endTimeout, callsOpen, before); n > before {
		run.Failf("the agent still has %v calls open", n)
	}
	return run.Milliseconds(time.Since(start))
}

// processGoes kills the process of a pod with open streams. It returns how long after a given
// moment the last stream ended.
func (b *streams) processGoes(ctx context.Context, inside func(context.Context, ends), from func(*corev1.Pod) seen) float64 {
	b.Await(ctx, startTimeout, tick, func() { // a killed process is back
		conn := b.forward(ctx, "echo")
		defer func() { _ = conn.Close() }()
		ping(conn, conn)
	})
	pods := run.Must(b.kube.CoreV1().Pods(streamsNamespace).List(ctx, metav1.ListOptions{LabelSelector: objectmeta.App + "=" + moves.Name}))
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		run.Failf("of App %s there are %d pods, or not one container", moves, len(pods.Items))
	}
	pod, open := &pods.Items[0], make(ends, b.Inside)
	for range b.Inside {
		inside(ctx, open)
	}
	happened := from(pod)
	run.Check(b.sys.KillPod("tar", pod.Name))
	return open.after(ctx, happened(ctx))
}

// killed returns when the process is killed.
func killed(*corev1.Pod) seen {
	now := time.Now()
	return func(context.Context) time.Time { return now }
}

// removed waits until containerd has removed the container whose process was killed. Before that it
// reports neither how a command ended nor that the container has (docs/adr/0029). The time depends
// on the node's disk.
func (b *streams) removed(pod *corev1.Pod) seen {
	await := run.Must(b.sys.WatchRemoval(pod.Status.ContainerStatuses[0].ContainerID))
	start := time.Now()
	return func(ctx context.Context) time.Time {
		ctx, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		at := run.Must(await(ctx))
		b.Add("container_removed", run.Milliseconds(at.Sub(start)))
		return at
	}
}

func (b *streams) appGoes(ctx context.Context) float64 {
	f := b.follow(ctx, 1, b.Streams)
	run.Check(b.client.Apps().Delete(ctx, logs(0), write))
	return f.ended.after(ctx, time.Now())
}

func (b *streams) jobEnds(ctx context.Context) float64 {
	complete := await(run.Must(b.kube.BatchV1().Jobs(streamsNamespace).Watch(ctx, metav1.ListOptions{})), func(o runtime.Object) bool {
		job, ok := o.(*batchv1.Job)
		return ok && job.Status.CompletionTime != nil
	})
	key := runnerapi.Key{Namespace: streamsNamespace, Name: "ends"}
	spec := runnerapi.JobSpec{Image: b.image, Args: []string{"-crash-after", jobTime.String(), "-exit-code", "0"}, Retries: new(int32(0))}
	run.Must(b.client.Jobs().Run(ctx, key, spec, write))
	open := make(ends, 1)
	var failed error
	open.note(func() {
		failed = b.client.Jobs().Logs(ctx, key, runnerapi.LogOptions{Follow: true}, func(runnerapi.LogLine) error { return nil })
	})
	took := open.after(ctx, complete(ctx))
	run.Check(failed)
	return took
}

// measureBytes moves bytes in and out of a pod, through a forwarded port and by copying a file, and
// compares their SHA-256 at both ends.
func (b *streams) measureBytes(ctx context.Context) {
	bytes := func() io.Reader { return payload.Bytes(int64(b.Bytes)) }
	file, inside := filepath.Join(b.sys.Dir, "bytes"), moved+"/in"
	write := run.Must(os.Create(file))
	run.Must(io.Copy(write, bytes()))
	run.Check(write.Close())
	want, peak, grown := sha(bytes()), 0.0, 0.0
	measure := func(id string, move func() string) {
		samples, start := b.watchMemory(ctx), time.Now()
		got := move()
		took, memory := time.Since(start), samples()
		if got != want {
			run.Failf("%s: SHA-256 %s, sent was %s", id, got, want)
		}
		peak, grown = max(peak, slices.Max(memory)), max(grown, growth(memory))
		b.Add(id, run.Mebibytes(int64(b.Bytes))/took.Seconds())
	}
	measure("forward_down", func() string {
		conn := b.forward(ctx, fmt.Sprintf("down %d", b.Bytes))
		defer func() { _ = conn.Close() }()
		return sha(conn)
	})
	measure("forward_up", func() string {
		conn := b.forward(ctx, fmt.Sprintf("up %d", b.Bytes))
		defer func() { _ = conn.Close() }()
		run.Must(io.Copy(conn, bytes()))
		return string(run.Must(io.ReadAll(io.LimitReader(conn, 1<<10))))
	})
	measure("copy_in", func() string {
		b.copy(ctx, file, moves.Name+":"+inside)
		var out strings.Builder
		code := run.Must(b.client.Apps().Exec(ctx, moves, runnerapi.ExecOptions{Command: []string{"/tar", "-sum", inside}},
			runnerapi.ExecStreams{Stdout: &out, Stderr: &out}))
		if code != 0 {
			run.Failf("exit code %d: %s", code, out.String())
		}
		return strings.TrimSpace(out.String())
	})
	measure("copy_out", func() string {
		b.copy(ctx, moves.Name+":"+inside, file+"-back")
		back := run.Must(os.Open(file + "-back"))
		defer func() { _ = back.Close() }()
		return sha(back)
	})
	b.Add("bytes_memory_peak", peak)
	b.Add("bytes_memory_growth", grown)
	b.neverRestarted(ctx)
}

func sha(from io.Reader) string {
	sum := sha256.New()
	run.Must(io.Copy(sum, from))
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// forward connects to the pod and sends what it must do.
func (b *streams) forward(ctx context.Context, what string) runnerapi.HalfCloser {
	conn := run.Must(b.client.Apps().PortForward(ctx, moves, runnerapi.PortForwardOptions{Port: bytesPort}))
	run.Must(fmt.Fprintln(conn, what))
	return conn
}

func (b *streams) copy(ctx context.Context, from, to string) {
	said, err := b.sys.Runner(ctx, name, "cp", name, from, to, "-n", streamsNamespace)
	if err != nil {
		run.Failf("%w: %s", err, said)
	}
}
