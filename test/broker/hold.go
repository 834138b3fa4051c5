package broker

import (
	"errors"
	"syscall"
)

// Hold suspends the server: it stops responding, and its connections stay.
func (b *Broker) Hold() error { return b.signal(syscall.SIGSTOP) }

// Resume continues the server after Hold.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) error {
	pids := b.processes("beam.smp")
	if len(pids) == 0 {
		return errors.New("the broker does not run")
	}
	var errs []error
	for _, pid := range pids {
		errs = append(errs, syscall.Kill(pid, s))
	}
	return errors.Join(errs...)
}

// URLAt is like URL with another address of the server, such as a forwarder's: its certificate is
// for 127.0.0.1.
func (b *Broker) URLAt(user, address string) string {
	return b.urlIn(user, address, "")
}
