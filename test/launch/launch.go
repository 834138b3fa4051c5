// Package launch starts processes that do not outlive the tests.
package launch

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a process with its output at the end of a file. The process gets the signal death
// when this one dies. done is closed when the process has ended.
func Start(cmd *exec.Cmd, logFile string, death syscall.Signal) (done <-chan struct{}, err error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = death
	cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal is for us
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	return ended, <-started
}
