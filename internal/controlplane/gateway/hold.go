package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const (
	// holdPause is how often an agent that is awaited is tried.
	holdPause = 100 * time.Millisecond
	// holdWithin is for how long after it was first missed an agent is awaited. Later, requests for
	// it fail at once.
	holdWithin = time.Minute
)

// dialFunc opens a stream to an agent.
type dialFunc func(ctx context.Context, agentID string) (net.Conn, error)

// holder dials agents, and waits for one that was lost a moment ago: it restarts.
type holder struct {
	dial     dialFunc
	patience time.Duration

	mu   sync.Mutex
	lost map[string]*lost // by agent
}

// lost is an agent without a tunnel.
type lost struct {
	since time.Time
	back  chan struct{} // closed when a dial reaches the agent
	turn  chan struct{} // holds the turn of the one request that tries
}

func newHolder(dial dialFunc, patience time.Duration) *holder {
	return &holder{dial: dial, patience: patience, lost: map[string]*lost{}}
}

// dialAgent opens a stream to an agent.
func (h *holder) dialAgent(ctx context.Context, agentID string) (net.Conn, error) {
	conn, err := h.try(ctx, agentID)
	if !isMissing(ctx, err) {
		return conn, err
	}
	away := h.missed(agentID)
	if time.Since(away.since) >= holdWithin {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	select {
	case <-away.turn:
		defer func() { away.turn <- struct{}{} }()
	case <-away.back:
		return h.try(ctx, agentID)
	case <-limited.Done():
		return nil, err
	}
	pause := time.NewTicker(holdPause)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-limited.Done():
			return nil, err
		}
		if conn, err = h.try(ctx, agentID); !isMissing(ctx, err) {
			return conn, err
		}
	}
}

// isMissing reports whether a dial found no way to the agent: it has no tunnel, or the control
// plane that has it does not answer.
func isMissing(ctx context.Context, err error) bool {
	return err != nil && !errors.Is(err, server.ErrBusy) && ctx.Err() == nil
}

func (h *holder) try(ctx context.Context, agentID string) (net.Conn, error) {
	conn, err := h.dial(ctx, agentID)
	if err == nil {
		h.reached(agentID)
	}
	return conn, err
}

func (h *holder) missed(agentID string) *lost {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost[agentID] == nil {
		h.lost[agentID] = &lost{since: time.Now(), back: make(chan struct{}), turn: make(chan struct{}, 1)}
		h.lost[agentID].turn <- struct{}{}
	}
	return h.lost[agentID]
}

func (h *holder) reached(agentID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if away := h.lost[agentID]; away != nil {
		close(away.back)
		delete(h.lost, agentID)
	}
}
