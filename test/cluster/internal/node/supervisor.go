package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const restartDelay = time.Second

// supervisor starts the components, and restarts those that end later on. As
// process 1 it also reaps what containers orphan, which is why it does not use
// os/exec: both would wait for the same processes.
type supervisor struct {
	journal *journal
	running map[int]Component // by process ID
	signals chan os.Signal
	restart chan Component
}

func newSupervisor(j *journal) *supervisor {
	s := &supervisor{
		journal: j,
		running: make(map[int]Component),
		signals: make(chan os.Signal, 64),
		restart: make(chan Component, 16),
	}
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGTERM)
	return s
}

// start brings all components up in order. One that ends meanwhile is an error.
func (s *supervisor) start(ctx context.Context, components []Component) error {
	for _, component := range components {
		if err := s.spawn(component, Started); err != nil {
			return err
		}
		if err := s.waitReady(ctx, component); err != nil {
			return s.fail(component, err)
		}
	}
	return nil
}

// run supervises until SIGTERM.
func (s *supervisor) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case component := <-s.restart:
			if err := s.spawn(component, Restarted); err != nil {
				return err
			}
		case received := <-s.signals:
			if received == unix.SIGTERM {
				return nil
			}
			for _, ended := range s.reap() {
				if err := s.journal.add(Failed, ended.component.Name, ended.status); err != nil {
					return err
				}
				time.AfterFunc(restartDelay, func() { s.restart <- ended.component })
			}
		}
	}
}

func (s *supervisor) spawn(component Component, kind EventKind) error {
	log, err := os.OpenFile(filepath.Join(Dir, LogDir, component.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", component.Name, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", component.Name, err), log.Close())
	}
	process, err := os.StartProcess(component.Command[0], component.Command, &os.ProcAttr{
		Dir: Dir, Env: environment(), Files: []*os.File{null, log, log},
	})
	if err := errors.Join(err, log.Close(), null.Close()); err != nil {
		return fmt.Errorf("start %s: %w", component.Name, err)
	}
	s.running[process.Pid] = component
	return errors.Join(process.Release(), s.journal.add(kind, component.Name, ""))
}

// environment returns the same variables wherever the cluster is started: a caller's proxy or
// locale must not change its behaviour.
func environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"TMPDIR=" + filepath.Join(Dir, "tmp"),
		"GOGC=300", // a cluster lives for minutes: its garbage costs more to collect than to keep
	}
}

func (s *supervisor) waitReady(ctx context.Context, component Component) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := component.Ready.attempt(ctx)
		if err == nil {
			return s.journal.add(Ready, component.Name, "")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-tick.C:
		case received := <-s.signals:
			if received == unix.SIGTERM {
				return errors.New("terminated")
			}
			if ended := s.reap(); len(ended) > 0 {
				return s.fail(ended[0].component, errors.New(ended[0].status))
			}
		}
	}
}

func (s *supervisor) fail(component Component, err error) error {
	var already *componentError
	if errors.As(err, &already) {
		return err
	}
	return errors.Join(&componentError{component.Name, err}, s.journal.add(Failed, component.Name, err.Error()))
}

type componentError struct {
	name string
	err  error
}

func (e *componentError) Error() string { return e.name + ": " + e.err.Error() }
func (e *componentError) Unwrap() error { return e.err }

type ended struct {
	component Component
	status    string
}

// reap collects all ended processes, and returns those that were components.
func (s *supervisor) reap() []ended {
	var found []ended
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if pid <= 0 {
			return found
		}
		if component, ok := s.running[pid]; ok {
			delete(s.running, pid)
			found = append(found, ended{component, describe(status)})
		}
	}
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exited with code %d", status.ExitStatus())
}
