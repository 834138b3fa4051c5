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

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// measureBytes moves bytes in and out of a pod, through a forwarded port and by copying a file, and
// compares their SHA-256 at both ends.
func (b *streams) measureBytes(ctx context.Context) {
	bytes := func() io.Reader { return payload.Bytes(int64(b.Bytes)) }
	file, inside := filepath.Join(b.sys.Dir, "bytes"), moved+"/in"
	write := run.Must(os.Create(file))
	run.Must(io.Copy(write, bytes()))
	run.Check(write.Close())
	want, wrong, peak, grown := sha(bytes()), 0.0, 0.0, 0.0
	measure := func(id string, move func() string) {
		samples, start := b.watchMemory(ctx), time.Now()
		got := move()
		took, memory := time.Since(start), samples()
		if got != want {
			wrong++
			b.Say("%s: SHA-256 %s, sent was %s", id, got, want)
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
	b.Add("bytes_wrong", wrong)
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
