// Package proc runs other sides of a benchmark as processes of their own, and measures their use of
// the machine.
package proc

import (
	"context"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	upTimeout = 30 * time.Second
	tick      = 20 * time.Millisecond
)

// Start starts this program with those arguments. Its log is in the directory.
func Start(dir, name string, args ...string) *harness.Program {
	p := (&harness.System{Options: harness.Options{Dir: dir}}).NewProgram(name, run.Must(os.Executable()), args, nil)
	run.Check(p.Start())
	return p
}

// Served is a process that calls Serve.
type Served struct {
	*harness.Program
	client *rpc.Client
}

// StartServed is like Start for a process that calls Serve with its last argument.
func StartServed(ctx context.Context, r *run.Run, dir, name string, args ...string) *Served {
	socket := filepath.Join(dir, name+".sock")
	s := &Served{Program: Start(dir, name, append(args, socket)...)}
	r.OnClose(s.Kill)
	r.Await(ctx, upTimeout, tick, func() { s.client = run.Must(rpc.Dial("unix", socket)) })
	return s
}

// Call calls a method of the receiver that the process serves.
func (s *Served) Call(ctx context.Context, method string, args, reply any) {
	select {
	case call := <-s.client.Go(method, args, reply, make(chan *rpc.Call, 1)).Done:
		run.Check(call.Error)
	case <-ctx.Done():
		run.Check(ctx.Err())
	}
}

// Serve serves a receiver's methods (net/rpc) to the process's end.
func Serve(ctx context.Context, socket string, receiver any) {
	run.Check(rpc.Register(receiver))
	rpc.Accept(run.Must(new(net.ListenConfig).Listen(ctx, "unix", socket)))
}

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
