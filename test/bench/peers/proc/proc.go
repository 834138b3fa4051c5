// Package proc runs other sides of a benchmark as processes of their own, and measures their use of
// the machine.
package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// Process is a program that runs beside the benchmark.
type Process struct {
	PID    int
	name   string
	log    string
	cmd    *exec.Cmd
	client *rpc.Client
	done   chan struct{}
	end    sync.Once
}

// Start starts this program with those arguments. Its output goes to a file.
func Start(name, log string, args ...string) *Process {
	p := command(name, log, args)
	p.cmd.Stdout = p.cmd.Stderr
	return p.start()
}

// StartServing is like Start for a process that calls Serve, for Call.
func StartServing(name, log string, args ...string) *Process {
	p := command(name, log, args)
	in, out := run.Must(p.cmd.StdinPipe()), run.Must(p.cmd.StdoutPipe())
	p.client = rpc.NewClient(pipes{out, in})
	return p.start()
}

func command(name, log string, args []string) *Process {
	cmd := exec.CommandContext(context.Background(), run.Must(os.Executable()), args...) // Kill ends it
	cmd.Stderr = run.Must(os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	// It must not outlive the benchmark, however that ends. Ctrl-C is only for the benchmark.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return &Process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
}

func (p *Process) start() *Process {
	run.Check(p.cmd.Start())
	_ = p.cmd.Stderr.(io.Closer).Close() // the process has its own
	p.PID = p.cmd.Process.Pid
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // it is killed
	}()
	return p
}

// Kill ends the process as a crash would, and waits for its end.
func (p *Process) Kill() {
	p.end.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.done
}

// Running fails with the process's last lines if it has ended.
func (p *Process) Running() {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.log) // without it the error is shorter
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		run.Failf("%s has ended; its last lines:\n%s", p.name, bytes.Join(lines[max(0, len(lines)-8):], []byte("\n")))
	default:
	}
}

// Call calls a method of the receiver that the process serves.
func (p *Process) Call(ctx context.Context, method string, args, reply any) {
	select {
	case call := <-p.client.Go(method, args, reply, make(chan *rpc.Call, 1)).Done:
		run.Check(call.Error)
	case <-ctx.Done():
		run.Check(ctx.Err())
	}
}

// Serve serves a receiver's methods (net/rpc) on standard input and output, to their end.
func Serve(receiver any) {
	srv := rpc.NewServer()
	run.Check(srv.Register(receiver))
	srv.ServeConn(pipes{os.Stdin, os.Stdout})
}

type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.WriteCloser.Close()) }

// Use is what a process has used of the machine, and has of it.
type Use struct {
	CPU      time.Duration // on all cores
	Resident int64
	Written  int64 // to disk
}

// UseOf returns a process's use until now.
func UseOf(pid int) Use {
	p := run.Must(procfs.NewProc(pid))
	cpu := run.Must(p.Stat()).CPUTime() * float64(time.Second)
	return Use{time.Duration(cpu), int64(run.Must(p.NewStatus()).VmRSS), int64(run.Must(p.IO()).WriteBytes)} //nolint:gosec // not that much
}
