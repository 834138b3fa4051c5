package server

import (
	"context"
	"errors"
	"net"
	"sync"
)

// DialEach opens a connection to each replica of the agent that accepts connections and calls use
// with it, concurrently; use closes it. DialEach returns when all calls have returned. A replica
// whose tunnel ends meanwhile is not an error.
func (s *Server) DialEach(ctx context.Context, agentID string, use func(context.Context, net.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.DialTimeout)
	defer cancel()
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	for _, each := range s.agents.taking(agentID) {
		wg.Add(1)
		started := each.work.Go(func() {
			defer wg.Done()
			err := each.use(ctx, use)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
		if !started { // it ended just now
			wg.Done()
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *session) use(ctx context.Context, use func(context.Context, net.Conn) error) error {
	conn, err := s.open(ctx, nil, false)
	if err == nil {
		err = use(ctx, conn)
	}
	if s.isDone() || errors.Is(err, ErrNotConnected) {
		return nil
	}
	return err
}

// taking returns the sessions of an agent that can be dialled, one for each replica.
func (r *agents) taking(id string) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[id]
	if a == nil {
		return nil
	}
	var all []*session
	for _, i := range a.instances {
		if s := i.current; s != nil && s.takes && !s.isDone() {
			all = append(all, s)
		}
	}
	return all
}
