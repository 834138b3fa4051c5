package main

import (
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
)

// taken is the CPU time that the sides of a way, and the load, have had of all cores. What else
// runs on the machine changes it by far less than it does rates and times.
type taken struct{ relay, agent, load time.Duration }

// used returns what both sides have used so far. A side that cannot be read has ended, which the
// next step reports.
func (i *instance) used() taken {
	of := func(pid int) time.Duration {
		took, err := proc.CPU(pid)
		if err != nil {
			return 0
		}
		return took
	}
	u := taken{agent: of(i.agent.PID), load: of(os.Getpid())}
	if i.relay != nil {
		u.relay = of(i.relay.PID)
	}
	return u
}

func (u taken) since(before taken) taken {
	return taken{u.relay - before.relay, u.agent - before.agent, u.load - before.load}
}
