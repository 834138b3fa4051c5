// Package crowd is thousands of agents in one process. Each is an agent to the control
// plane, by the agent's own parts: its identity, its client of the control API, its tunnel
// and the Runner API's TLS and server behind that. Simulated is the rest: an agent of the
// crowd has no Kubernetes, so it tells made-up figures of its cluster, no engine for Apps,
// so its Apps' events are made up too, and its heartbeat loop is a short one of this package.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// Crowd is served to the benchmark by net/rpc, hence the form of its methods.
type Crowd struct {
	agents []*agent
	from   int
	life   sync.WaitGroup
}

// New is a crowd of nobody.
func New() *Crowd { return &Crowd{} }

// Enrolment is what makes a crowd of agents.
type Enrolment struct {
	URL, CAFile, Token string
	// From numbers the agents, so that several crowds do not use a name twice.
	From, Count int
}

// enrolling is how many ask at a time.
const enrolling = 16

// Enrol has all agents register, and answers how long it took.
func (c *Crowd) Enrol(e Enrolment, took *time.Duration) error {
	token, err := controlapi.ParseToken(e.Token)
	if err != nil {
		return err
	}
	roots, err := os.ReadFile(e.CAFile)
	if err != nil {
		return err
	}
	start := time.Now()
	c.agents, c.from = make([]*agent, e.Count), e.From
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(enrolling)
	desk, err := newDesk(e.URL, roots, token)
	if err != nil {
		return err
	}
	defer desk.close()
	for i := range e.Count {
		group.Go(func() (err error) {
			c.agents[i], err = desk.enrol(ctx, e.From+i)
			return err
		})
	}
	err = group.Wait()
	*took = time.Since(start)
	return err
}

// None is what is not said.
type None struct{}

// Connect has all agents connect at once, and stay.
func (c *Crowd) Connect(None, *None) error {
	for _, a := range c.agents {
		c.life.Go(func() { a.live(context.Background()) }) // to the end of the process
	}
	return nil
}

// ProfileCPU writes where these agents' CPU goes for the next seconds into a file.
func (c *Crowd) ProfileCPU(p CPUProfile, _ *None) error {
	file, err := os.Create(p.Path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	time.Sleep(p.For)
	pprof.StopCPUProfile()
	return file.Close()
}

// CPUProfile is the file that takes a profile, and of how long.
type CPUProfile struct {
	Path string
	For  time.Duration
}

// Profile writes what the memory of these agents holds into a file, with the runtime's statistics into
// another beside it, and what waits into a third.
func (c *Crowd) Profile(path string, _ *None) error {
	return errors.Join(
		writeProfile("heap", path+"-and-statistics", 1),
		writeProfile("heap", path, 0),
		writeProfile("goroutine", path+"-goroutines", 0),
	)
}

func writeProfile(what, path string, form int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(what).WriteTo(file, form), file.Close())
}

// State is how the agents are.
type State struct {
	// Connected have a tunnel since the time that was asked for, or later; Heard had a
	// heartbeat answered since; Back both.
	Connected, Heard, Back int
	// Beats were answered from the beginning.
	Beats int64
	// Trouble is what failed last, of any of them.
	Trouble   string
	TroubleAt time.Time
}

// Look answers how the agents are.
func (c *Crowd) Look(since time.Time, s *State) error {
	for _, a := range c.agents {
		connected, heard := a.connectedSince(since), a.heardSince(since)
		if connected {
			s.Connected++
		}
		if heard {
			s.Heard++
		}
		if connected && heard {
			s.Back++
		}
		s.Beats += a.beats.Load()
		if t := a.trouble.Load(); t != nil && !t.at.Before(s.TroubleAt) {
			s.Trouble, s.TroubleAt = t.text, t.at
		}
	}
	return nil
}

// Posting is what the agents have to tell of their Apps.
type Posting struct {
	// Agents tell, the first ones, each that many events.
	Agents, Each int
}

// batch is how many events an agent sends in one call.
const batch = 5

// Post has the agents tell: each its events in their order, several agents at a time. It
// answers how many the control plane took.
func (c *Crowd) Post(p Posting, taken *int) error {
	if p.Agents > len(c.agents) {
		return errors.New("there are not so many agents")
	}
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(enrolling)
	for i := range p.Agents {
		group.Go(func() error {
			for first := 0; first < p.Each; first += batch {
				if err := c.agents[i].tell(ctx, first, min(batch, p.Each-first)); err != nil {
					return fmt.Errorf("events of agent %d: %w", c.from+i, err)
				}
			}
			return nil
		})
	}
	*taken = p.Agents * p.Each
	return group.Wait()
}
