package broker

import (
	"errors"
	"fmt"
	"syscall"
)

// Hold stops the server's time: it answers nobody, and its connections stay.
func (b *Broker) Hold() error { return b.signal(syscall.SIGSTOP) }

// Resume lets the server go on after Hold.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) error {
	pids := b.processes("beam.smp")
	if len(pids) == 0 {
		return fmt.Errorf("broker %s does not run", b.name)
	}
	var errs []error
	for _, pid := range pids {
		errs = append(errs, syscall.Kill(pid, s))
	}
	return errors.Join(errs...)
}

// URLAt is URL with another address for the server, which a forwarder to it has:
// its certificate is for 127.0.0.1.
func (b *Broker) URLAt(user, address string) string {
	return b.urlIn(user, address, "")
}
