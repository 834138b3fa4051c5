package recording

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// storeTimeout bounds what is asked of the store at the beginning of a session.
const storeTimeout = 10 * time.Second

// Recorder is one replica's recorder. It implements backend.Recorder.
type Recorder struct {
	store Store
	now   func() time.Time

	mu   sync.Mutex
	open int // sessions that are recorded now
}

var _ backend.Recorder = (*Recorder)(nil)

// New returns a recorder that keeps recordings in that store.
func New(store Store) *Recorder { return &Recorder{store: store, now: time.Now} }

// Begin implements backend.Recorder.
func (r *Recorder) Begin(ctx context.Context, s backend.Session) (backend.Recording, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	open, ok := r.enter()
	if !ok {
		return nil, fmt.Errorf("the agent records %d sessions already, which is as many as it can", maxOpen)
	}
	recording, err := r.begin(ctx, s, open)
	if err != nil {
		r.leave()
		return nil, err
	}
	return recording, nil
}

func (r *Recorder) begin(ctx context.Context, s backend.Session, open int) (*recording, error) {
	if err := r.makeRoom(ctx, open); err != nil {
		return nil, err
	}
	at := r.now()
	id := newID(at)
	text, err := newHeader(id, at, s)
	if err != nil {
		return nil, err
	}
	if err := r.store.Put(ctx, id, 0, text); err != nil {
		return nil, fmt.Errorf("store the recording in %s: %w", r.store, err)
	}
	return newRecording(r, id, at, len(text), s.TTY), nil
}

// enter takes one of the places for open sessions and returns how many are taken.
func (r *Recorder) enter() (open int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= maxOpen {
		return 0, false
	}
	r.open++
	return r.open, true
}

func (r *Recorder) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// makeRoom removes the oldest recordings, until there is room for what open sessions may still
// record.
func (r *Recorder) makeRoom(ctx context.Context, open int) error {
	all, err := r.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list the recordings in %s: %w", r.store, err)
	}
	bytes, parts := int64(open)*MaxSession, maxParts
	for _, e := range all {
		bytes += e.Bytes
		parts += e.Parts
	}
	for _, e := range all {
		if bytes <= MaxTotal && parts <= MaxTotalParts {
			return nil
		}
		if r.now().Sub(begun(e.ID)) < KeepAtLeast {
			break
		}
		if err := r.store.Delete(ctx, e.ID); err != nil {
			return fmt.Errorf("remove the oldest recording: %w", err)
		}
		bytes -= e.Bytes
		parts -= e.Parts
	}
	if bytes > MaxTotal || parts > MaxTotalParts {
		return fmt.Errorf("the recordings of the last %s leave no room for another one in %s", KeepAtLeast, r.store)
	}
	return nil
}
