// Package crowd runs thousands of agents in one process. To the control plane each is a real agent,
// built from the agent's own parts: its identity, its client of the control API, its tunnel, and
// the Runner API's TLS and server behind that. The rest is simulated. An agent of the crowd has no
// Kubernetes, so its cluster's figures are invented. It has no engine for Apps, so its Apps' events
// are invented too. Its heartbeat loop is a short one in this package.
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

// Crowd is served to the benchmark by net/rpc, which determines the form of its methods.
type Crowd struct {
	agents []*agent
	from   int
	life   sync.WaitGroup
}

// New returns an empty crowd.
func New() *Crowd { return &Crowd{} }

// Enrolment describes how to create a crowd of agents.
type Enrolment struct {
	URL, CAFile, Token string
	// From numbers the agents, so that several crowds do not use a name twice.
	From, Count int
}

// enrolling is how many agents register at a time.
const enrolling = 16

// Enrol registers all agents, and returns how long that took.
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

// None is an empty argument or result.
type None struct{}

// Connect connects all agents at once, and keeps them connected.
func (c *Crowd) Connect(None, *None) error {
	for _, a := range c.agents {
		c.life.Go(func() { a.live(context.Background()) }) // to the end of the process
	}
	return nil
}

// ProfileCPU writes a CPU profile of these agents over the next seconds to a file.
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

// CPUProfile is the file of a profile, and its duration.
type CPUProfile struct {
	Path string
	For  time.Duration
}

// Profile writes a memory profile of these agents to a file. It writes the runtime's statistics to
// a second file beside it, and the waiting goroutines to a third.
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

// State is the state of the agents.
type State struct {
	// Connected counts the agents with a tunnel since the given time or later, and Heard those with
	// an answered heartbeat since then. Back counts those with both.
	Connected, Heard, Back int
	// Beats is the number of heartbeats that were answered since the start.
	Beats int64
	// Trouble is the last failure of any agent.
	Trouble   string
	TroubleAt time.Time
}

// Look returns the state of the agents.
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

// Posting describes the events that the agents send about their Apps.
type Posting struct {
	// Agents is how many agents send, starting with the first, and Each how many events each sends.
	Agents, Each int
}

// batch is how many events an agent sends in one call.
const batch = 5

// Post makes the agents send events: each its own in order, several agents at a time. It returns
// how many the control plane accepted.
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
