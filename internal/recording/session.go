package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// storeEvery is how long output waits to be stored. If the agent is killed, that much is lost.
	storeEvery = 10 * time.Second
	// partSize is how much output is stored at once, in bytes.
	partSize = 64 << 10
	// piece is how much output becomes one event, in bytes. JSON may make six bytes of one.
	piece = 8 << 10
	// storePatience is how long a part is tried, and its waits in between.
	storePatience      = 10 * time.Second
	retryMin, retryMax = 100 * time.Millisecond, 2 * time.Second
)

// The markers at the end of a recording. Without one, the agent was killed.
const (
	endMarker  = "ended"
	fullMarker = "ended: the recording is full"
)

// errOver is what output gets that comes after the end of the recording.
var errOver = errors.New("the recording has ended")

// recording is the recording of one session. It implements backend.Recording.
type recording struct {
	recorder *Recorder
	id       string
	begun    time.Time
	tty      bool
	limit    time.Duration
	every    time.Duration

	now  chan struct{} // a writer waits until its output is being stored
	full chan struct{} // closed when the recording has reached its size
	over chan struct{} // closed when nothing more is recorded
	left sync.Once

	mu      sync.Mutex
	isFull  bool
	buffer  []byte
	size    int // of all, including the buffer
	outputs []*output

	part int // the next one; only Run uses it
}

var _ backend.Recording = (*recording)(nil)

func newRecording(r *Recorder, id string, at time.Time, size int, tty bool) *recording {
	return &recording{
		recorder: r, id: id, begun: at, tty: tty, limit: MaxDuration, every: storeEvery, size: size, part: 1,
		now: make(chan struct{}), full: make(chan struct{}), over: make(chan struct{}),
	}
}

// ID implements runnerapi.Recording.
func (r *recording) ID() string { return r.id }

// Close implements runnerapi.Recording.
func (r *recording) Close() { r.left.Do(func() { r.recorder.leave(owner(r.id)) }) }

// Output implements runnerapi.Recording.
func (r *recording) Output() io.Writer {
	o := &output{recording: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outputs = append(r.outputs, o)
	return o
}

// Resize implements runnerapi.Recording.
func (r *recording) Resize(size runnerapi.TerminalSize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.add(codeResize, fmt.Sprintf("%dx%d", size.Width, size.Height)) // Run ends the session if it is full
}

// add appends an event to the buffer.
func (r *recording) add(code, data string) error {
	line := event(r.recorder.now().Sub(r.begun), code, data)
	if r.isFull || r.size+len(line) > MaxSession {
		if !r.isFull {
			r.isFull = true
			close(r.full)
		}
		return errOver
	}
	r.buffer = append(r.buffer, line...)
	r.size += len(line)
	return nil
}

// Run implements runnerapi.Recording.
func (r *recording) Run(ctx context.Context) error {
	defer close(r.over)
	storing := context.WithoutCancel(ctx)
	timer := time.NewTimer(r.limit)
	defer timer.Stop()
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.finish(storing)
		case <-r.full:
			return r.finish(storing)
		case <-timer.C:
			return r.stop(storing)
		case <-r.now:
		case <-ticker.C:
		}
		if err := r.flush(storing); err != nil {
			return err
		}
		if r.part >= maxParts-1 {
			return r.stop(storing)
		}
	}
}

// stop ends a recording that has reached a limit other than its size.
func (r *recording) stop(ctx context.Context) error {
	r.mu.Lock()
	r.isFull = true
	r.mu.Unlock()
	return r.finish(ctx)
}

// finish stores what is left, and the marker of the end.
func (r *recording) finish(ctx context.Context) error {
	r.mu.Lock()
	for _, o := range r.outputs {
		o.rest()
	}
	marker, full := endMarker, r.isFull
	if full {
		marker = fullMarker
	}
	r.buffer = append(r.buffer, event(r.recorder.now().Sub(r.begun), codeMarker, marker)...)
	r.mu.Unlock()
	if err := r.flush(ctx); err != nil {
		return err
	}
	if full {
		return backend.RecordingFull(MaxSession, MaxDuration)
	}
	return nil
}

// flush stores the buffer, and retries for a while.
func (r *recording) flush(ctx context.Context) error {
	r.mu.Lock()
	text := r.buffer
	r.buffer = nil
	r.mu.Unlock()
	if len(text) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	for waits := retry.Backoff(retryMin, retryMax); ; {
		err := r.recorder.store.Put(ctx, r.id, r.part, text)
		if err == nil {
			r.part++
			return nil
		}
		if !retry.Wait(ctx, waits.NextBackOff()) {
			return fmt.Errorf("store the recording in %s: %w", r.recorder.store, err)
		}
	}
}

// output records one stream of a session. A character may arrive in two writes.
type output struct {
	recording *recording
	begun     []byte // an incomplete character
}

// Write implements io.Writer. It waits while much output is yet to be stored.
func (o *output) Write(p []byte) (int, error) {
	for written := 0; written < len(p); {
		n := min(len(p)-written, piece)
		if err := o.write(p[written : written+n]); err != nil {
			return written, err
		}
		written += n
	}
	return len(p), nil
}

func (o *output) write(p []byte) error {
	r := o.recording
	select {
	case <-r.over:
		return errOver
	default:
	}
	r.mu.Lock()
	text := slices.Concat(o.begun, p)
	n := whole(text)
	o.begun = bytes.Clone(text[n:])
	err := o.add(text[:n])
	wait := len(r.buffer) >= partSize
	r.mu.Unlock()
	if err != nil || !wait {
		return err
	}
	select {
	case r.now <- struct{}{}:
		return nil
	case <-r.over:
		return errOver
	}
}

// rest records the incomplete character that a stream ended with.
func (o *output) rest() {
	_ = o.add(o.begun)
	o.begun = nil
}

// add appends output. Without a terminal, a line feed alone would not bring a player to the
// beginning of the next line.
func (o *output) add(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if !o.recording.tty {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return o.recording.add(codeOutput, string(text))
}
