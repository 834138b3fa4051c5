// Package cage confines the process that renders. It takes files, the network, other programs and
// memory beyond a limit from the process. A template that breaks its interpreter gains nothing.
// Only Linux has a cage.
package cage

import (
	"fmt"
	"runtime"
)

// parts are in this order because each forbids what those before it need. Some kernels and
// containers do not offer all of them.
var parts = []struct {
	name           string
	offered, enter func() error
}{
	{"Landlock", landlockOffered, forbidFiles},
	{"RLIMIT_NOFILE", always, forbidOpening},
	{"seccomp", seccompOffered, forbidCalls},
}

func always() error { return nil }

// Enter confines all threads of this process for good. It leaves out what Missing lists. The
// process may map growth bytes of memory beside what it has.
func Enter(growth int64) error {
	runtime.LockOSThread() // seccomp's calls have to be of one thread
	defer runtime.UnlockOSThread()
	if err := closeInherited(); err != nil {
		return fmt.Errorf("close the parent's files: %w", err)
	}
	if err := limit(growth); err != nil {
		return err
	}
	for _, p := range parts {
		if p.offered() != nil {
			continue
		}
		if err := p.enter(); err != nil {
			return fmt.Errorf("confine the process by %s: %w", p.name, err)
		}
	}
	return nil
}

// Missing returns the parts that this system does not offer, with reasons.
func Missing() []string {
	var missing []string
	for _, p := range parts {
		if err := p.offered(); err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", p.name, err))
		}
	}
	return missing
}
