package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
)

// measureBytes moves bytes in and out of a pod, through a forwarded port and by copying a
// file, and compares their SHA-256 at both ends.
func (b *streams) measureBytes(ctx context.Context) error {
	want, err := sha(payload.Bytes(b.Bytes))
	if err != nil {
		return err
	}
	file := filepath.Join(b.sys.Dir, "bytes")
	if err := writeBytes(file, b.Bytes); err != nil {
		return err
	}
	wrong, peak, growth := 0.0, int64(0), int64(0)
	for _, way := range []struct {
		id   string
		move func(context.Context) (sum string, err error)
	}{
		{"forward_down", b.forwardDown},
		{"forward_up", b.forwardUp},
		{"copy_in", func(ctx context.Context) (string, error) { return b.copyIn(ctx, file) }},
		{"copy_out", func(ctx context.Context) (string, error) { return b.copyOut(ctx, file+"-back") }},
	} {
		samples, start := b.watchMemory(ctx), time.Now()
		got, err := way.move(ctx)
		took := time.Since(start)
		m, failed := samples()
		if err != nil {
			return fmt.Errorf("%s: %w", way.id, err)
		}
		if got != want {
			wrong++
			b.say("%s: SHA-256 %s, sent was %s", way.id, got, want)
		}
		if failed != nil {
			return failed
		}
		peak, growth = max(peak, highest(m.samples)), max(growth, m.growth())
		b.set.Add(way.id, float64(b.Bytes)/(1<<20)/took.Seconds())
	}
	b.set.Add("bytes_wrong", wrong)
	b.set.Add("bytes_memory_peak", mebibytes(peak))
	b.set.Add("bytes_memory_growth", mebibytes(growth))
	return b.neverRestarted(ctx)
}

func sha(from io.Reader) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, from)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

func shaOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return sha(f)
}

func writeBytes(file string, n int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, payload.Bytes(n))
	return errors.Join(err, f.Close())
}

func (b *streams) forwardDown(ctx context.Context) (string, error) {
	conn, err := b.forward(ctx, "down")
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return sha(conn)
}

func (b *streams) forwardUp(ctx context.Context) (string, error) {
	conn, err := b.forward(ctx, "up")
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.Copy(conn, payload.Bytes(b.Bytes)); err != nil {
		return "", err
	}
	sum, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	return string(sum), err
}

// forward connects to the pod and sends what it must do.
func (b *streams) forward(ctx context.Context, what string) (runnerapi.HalfCloser, error) {
	conn, err := b.client.Apps().PortForward(ctx, moves, runnerapi.PortForwardOptions{Port: bytesPort})
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s %d\n", what, b.Bytes); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (b *streams) copyIn(ctx context.Context, file string) (string, error) {
	if err := b.copy(ctx, file, moves.Name+":"+moved+"/in"); err != nil {
		return "", err
	}
	var out strings.Builder
	code, err := b.client.Apps().Exec(ctx, moves, runnerapi.ExecOptions{Command: []string{"/tar", "-sum", moved + "/in"}},
		runnerapi.ExecStreams{Stdout: &out, Stderr: &out})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, out.String())
	}
	return strings.TrimSpace(out.String()), err
}

func (b *streams) copyOut(ctx context.Context, file string) (string, error) {
	if err := b.copy(ctx, moves.Name+":"+moved+"/in", file); err != nil {
		return "", err
	}
	return shaOf(file)
}

func (b *streams) copy(ctx context.Context, from, to string) error {
	said, err := b.sys.Runner(ctx, name, "cp", name, from, to, "-n", streamsNamespace)
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}
