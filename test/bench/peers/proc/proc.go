// Package proc runs other sides of a benchmark as processes of their own, and measures their use of
// the machine.
package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs beside the benchmark.
type Process struct {
	PID  int
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	end  sync.Once
}

// Start starts this program with those arguments. Its output goes to a file.
func Start(name, log string, args ...string) (*Process, error) {
	return start(name, log, nil, args)
}

func start(name, log string, prepare func(*exec.Cmd), args []string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()                             // the process has its own
	cmd := exec.CommandContext(context.Background(), self, args...) // Kill ends it
	cmd.Stdout, cmd.Stderr = file, file
	if prepare != nil {
		prepare(cmd)
	}
	// It must not outlive the benchmark, however that ends. Ctrl-C is only for the benchmark.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{PID: cmd.Process.Pid, name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // it is killed
	}()
	return p, nil
}

// Kill ends the process as a crash would, and waits for its end.
func (p *Process) Kill() {
	p.end.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.done
}

// Ended returns an error with the process's last lines if it has ended.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.log) // without it the error is shorter
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		return fmt.Errorf("%s has ended; its last lines:\n%s", p.name, bytes.Join(lines[max(0, len(lines)-8):], []byte("\n")))
	default:
		return nil
	}
}

// Resident returns the process's resident memory in bytes (VmRSS of proc(5)).
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		if rest, ok := strings.CutPrefix(scan.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// clockTick is Linux' USER_HZ, which is the same on all of Go's platforms.
const clockTick = 10 * time.Millisecond

// CPU returns the process's CPU time on all cores (utime and stime of proc(5)).
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return cpuOf(string(text))
}

func cpuOf(stat string) (time.Duration, error) {
	end := strings.LastIndex(stat, ") ") // the end of the name, which may contain anything
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("stat %q: not in the form of proc(5)", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// Written returns how many bytes the process made the kernel write to disk (write_bytes of
// proc(5)).
func Written(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes:"); ok {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return 0, fmt.Errorf("process %d has no write_bytes", pid)
}
