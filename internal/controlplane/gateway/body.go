package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// ownBodyTime is how long a body for the gateway's own host may take in all: its handler reads
// forms, and has fewer places than an App.
const ownBodyTime = 30 * time.Second

// dueBody is a request's body that has to be there by a time.
type dueBody struct {
	io.ReadCloser
	by time.Time
}

// Read implements io.Reader.
func (b dueBody) Read(p []byte) (int, error) {
	if !time.Now().Before(b.by) {
		return 0, os.ErrDeadlineExceeded
	}
	return b.ReadCloser.Read(p)
}

// movingBody is a request's body that has to keep coming until the App begins to answer. From then
// on it is for the App to end a silent request: a gRPC stream has nothing to say for hours.
type movingBody struct {
	io.ReadCloser
	within time.Duration
	// multiplexed reports that the request has its own stream in its connection, as in HTTP/2.
	multiplexed bool

	mu       sync.Mutex
	rc       *http.ResponseController
	released bool
	reading  bool
	until    time.Time // when the next bytes have to be there; zero for no limit
	late     bool      // they were not
	begun    bool      // the answer has begun
	ended    bool      // the body was read to its end, or as far as it can be
	bad      bool      // it is malformed, or was cut off
}

// newMovingBody makes a request have such a body, if it has one.
func newMovingBody(w http.ResponseWriter, r *http.Request, within time.Duration) *movingBody {
	b := &movingBody{ReadCloser: r.Body, within: within, multiplexed: r.ProtoMajor > 1, rc: http.NewResponseController(w)}
	if r.Body == nil || r.Body == http.NoBody {
		b.released = true
		return b
	}
	r.Body = b
	_, b.late = b.ReadCloser.(lateBody)
	if !b.multiplexed { // net/http reads the body of a request that is refused
		b.expect(time.Now().Add(within))
	}
	return b
}

// Read implements io.Reader.
func (b *movingBody) Read(p []byte) (int, error) {
	b.expect(time.Now().Add(b.within))
	b.note(true, nil)
	n, err := b.ReadCloser.Read(p)
	b.note(false, err)
	// After the end of the body, a deadline would end the wait for a late answer. Before it, HTTP/1
	// needs one: net/http reads the rest of a body that the App did not want. In HTTP/2 it would
	// end the body while the App takes its time to read.
	if b.multiplexed || errors.Is(err, io.EOF) {
		b.expect(time.Time{})
	}
	return n, err
}

func (b *movingBody) note(reading bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = reading
	late := errors.Is(err, os.ErrDeadlineExceeded)
	b.late = b.late || late
	b.ended = b.ended || err != nil
	b.bad = b.bad || err != nil && !late && !errors.Is(err, io.EOF) && !b.multiplexed && !b.released
}

// broken reports that the body of an HTTP/1 request is not as HTTP says.
func (b *movingBody) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bad
}

// stalled reports that the client has not sent the next bytes in time. net/http cancels an HTTP/1
// request before the read returns that, so the time counts too.
func (b *movingBody) stalled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.late || b.reading && !b.until.IsZero() && !time.Now().Before(b.until)
}

// Close implements io.Closer.
func (b *movingBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

// begins ends the deadlines because an answer begins.
func (b *movingBody) begins() {
	b.expect(time.Time{})
	if b.multiplexed {
		b.release()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = true
}

// release ends the use of the connection: it must not be used when the request's handler has
// returned, and the transport may read for longer. HTTP/1 has a deadline for what net/http reads of
// a body that the App did not want.
func (b *movingBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.released && !b.multiplexed && !b.ended {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.within)) // a connection without deadlines has none
	}
	b.released = true
}

// expect sets the time until which the client must send something.
func (b *movingBody) expect(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.released && !b.begun {
		b.until = until
		_ = b.rc.SetReadDeadline(until) // a connection without deadlines has none
	}
}
