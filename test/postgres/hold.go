package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Hold suspends the server and all its backends: they stop responding, and their connections stay.
func (s *Server) Hold() error { return s.signalAll(syscall.SIGSTOP) }

// Resume continues them after Hold.
func (s *Server) Resume() error { return s.signalAll(syscall.SIGCONT) }

// signalAll begins with the server, which creates the others. A backend that is gone meanwhile
// needs no signal.
func (s *Server) signalAll(what syscall.Signal) error {
	server := s.process.cmd.Process.Pid
	if err := syscall.Kill(server, what); err != nil {
		return err
	}
	backends, err := children(server)
	errs := []error{err}
	for _, pid := range backends {
		if err := syscall.Kill(pid, what); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// children returns the children of a process (proc(5), task/TID/children).
func children(pid int) ([]int, error) {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			found = append(found, child)
		}
	}
	return found, nil
}
