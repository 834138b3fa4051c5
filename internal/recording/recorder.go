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
	open map[string]int // sessions that are recorded now, by the digest of their Runner
}

var _ backend.Recorder = (*Recorder)(nil)

// New returns a recorder that keeps recordings in that store.
func New(store Store) *Recorder {
	return &Recorder{store: store, now: time.Now, open: map[string]int{}}
}

// Begin implements backend.Recorder.
func (r *Recorder) Begin(ctx context.Context, s backend.Session) (backend.Recording, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	runner := digest(s.Runner)
	wanted, err := r.enter(runner)
	if err != nil {
		return nil, err
	}
	recording, err := r.begin(ctx, s, wanted)
	if err != nil {
		r.leave(runner)
		return nil, err
	}
	return recording, nil
}

func (r *Recorder) begin(ctx context.Context, s backend.Session, wanted *space) (*recording, error) {
	if err := r.makeRoom(ctx, wanted); err != nil {
		return nil, err
	}
	at := r.now()
	id := newID(at, s.Runner)
	text, err := newHeader(id, at, s)
	if err != nil {
		return nil, err
	}
	if err := r.store.Put(ctx, id, 0, text); err != nil {
		return nil, fmt.Errorf("store the recording in %s: %w", r.store, err)
	}
	return newRecording(r, id, at, len(text), s.TTY), nil
}

// enter takes one of the places for open sessions. It returns the space that all open sessions may
// still need.
func (r *Recorder) enter(runner string) (*space, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, n := range r.open {
		all += n
	}
	switch {
	case all >= maxOpen:
		return nil, fmt.Errorf("the agent records %d sessions already, which is as many as it can", maxOpen)
	case r.open[runner] >= maxOpenOfRunner:
		return nil, fmt.Errorf("the agent records %d sessions of this Runner already, which is its share", maxOpenOfRunner)
	}
	r.open[runner]++
	wanted := newSpace(runner)
	for of, n := range r.open {
		wanted.add(of, int64(n)*MaxSession, 0)
	}
	wanted.add(runner, 0, maxParts)
	return wanted, nil
}

func (r *Recorder) leave(runner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[runner]--; r.open[runner] == 0 {
		delete(r.open, runner)
	}
}

// makeRoom removes recordings, oldest first, until the Runner's share has room for what open
// sessions may still record. It removes none of a Runner that has less than this one.
func (r *Recorder) makeRoom(ctx context.Context, used *space) error {
	all, err := r.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list the recordings in %s: %w", r.store, err)
	}
	removable := map[string][]Entry{}
	for _, e := range all {
		of := owner(e.ID)
		used.add(of, e.Bytes, e.Parts)
		if r.now().Sub(begun(e.ID)) >= KeepAtLeast {
			removable[of] = append(removable[of], e)
		}
	}
	for !used.fits() {
		of, found := used.largest(removable)
		if !found {
			return fmt.Errorf("the recordings of the last %s leave no room for another one of this Runner in %s", KeepAtLeast, r.store)
		}
		oldest := removable[of][0]
		if err := r.store.Delete(ctx, oldest.ID); err != nil {
			return fmt.Errorf("remove the oldest recording: %w", err)
		}
		removable[of] = removable[of][1:]
		used.add(of, -oldest.Bytes, -oldest.Parts)
	}
	return nil
}
