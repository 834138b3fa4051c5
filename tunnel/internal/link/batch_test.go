package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gated is a connection whose writes take until they are let through.
type gated struct {
	net.Conn
	gate chan struct{} // nil lets all through

	mu       sync.Mutex
	writes   [][]byte
	deadline time.Time
	closed   chan struct{}
	once     sync.Once
}

func newGated(gate chan struct{}) *gated { return &gated{gate: gate, closed: make(chan struct{})} }

func (g *gated) Write(p []byte) (int, error) {
	g.mu.Lock()
	g.writes = append(g.writes, bytes.Clone(p))
	late := time.Until(g.deadline)
	g.mu.Unlock()
	if g.gate == nil {
		return len(p), nil
	}
	select {
	case <-g.gate:
		return len(p), nil
	case <-time.After(late):
		return 0, os.ErrDeadlineExceeded
	case <-g.closed:
		return 0, net.ErrClosed
	}
}

func (g *gated) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = t
	return nil
}

func (g *gated) Close() error {
	g.once.Do(func() { close(g.closed) })
	return nil
}

func (g *gated) written() [][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([][]byte(nil), g.writes...)
}

// TestWhatWaitsGoesOutTogether in the order in which it was written.
func TestWhatWaitsGoesOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newBatch(conn, nil)
		for i := range 10 {
			must(t, b, string(rune('a'+i)))
			synctest.Wait()
		}
		conn.gate <- struct{}{}
		synctest.Wait()
		conn.gate <- struct{}{}
		if got := conn.written(); len(got) != 2 || string(got[0]) != "a" || string(got[1]) != "bcdefghij" {
			t.Errorf("written: %q", got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAFramesHeaderWaitsForItsBody, whatever the body looks like.
func TestAFramesHeaderWaitsForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(nil)
		b := newBatch(conn, nil)
		header := make([]byte, frameHeaderSize)
		binary.BigEndian.PutUint32(header[frameLengthStart:], frameHeaderSize)
		must(t, b, string(header))
		synctest.Wait()
		if got := conn.written(); len(got) != 0 {
			t.Fatalf("a header alone: %q", got)
		}
		must(t, b, string(header)) // as a body
		synctest.Wait()
		if got := conn.written(); len(got) != 1 || len(got[0]) != 2*frameHeaderSize {
			t.Errorf("written: %q", got)
		}
		header[frameType] = 2 // a ping, whose length is no length
		must(t, b, string(header))
		synctest.Wait()
		if got := conn.written(); len(got) != 2 {
			t.Errorf("written: %q", got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNoMoreWaitsThanFits holds a writer until the others are gone.
func TestNoMoreWaitsThanFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newBatch(conn, nil)
		must(t, b, "first")
		synctest.Wait()
		large := strings.Repeat("x", 2*batchSize+1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			must(t, b, large)
		}()
		synctest.Wait()
		if isClosed(done) {
			t.Error("more was taken than fits")
		}
		for range 3 {
			conn.gate <- struct{}{}
			synctest.Wait()
		}
		if !isClosed(done) {
			t.Error("the writer still waits")
		}
		conn.gate <- struct{}{}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		var all []byte
		for _, w := range conn.written() {
			if len(w) > batchSize {
				t.Errorf("a write of %d", len(w))
			}
			all = append(all, w...)
		}
		if string(all) != "first"+large {
			t.Errorf("%d bytes arrived, or in another order", len(all))
		}
	})
}

// TestAPeerThatTakesNothing fails the next write, and closes the connection so that the
// reader knows.
func TestAPeerThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newBatch(conn, nil)
		must(t, b, "x")
		time.Sleep(writeTimeout + time.Millisecond)
		synctest.Wait()
		if !isClosed(conn.closed) {
			t.Error("the connection is open")
		}
		if _, err := b.Write([]byte("y")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the next write: %v", err)
		}
		if err := b.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
	})
}

// TestCloseWritesWhatWaits, but not for long, and lets go of who waits to write.
func TestCloseWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(nil)
		b := newBatch(conn, nil)
		must(t, b, "farewell")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if got := conn.written(); len(got) != 1 || string(got[0]) != "farewell" {
			t.Errorf("written: %q", got)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}

		conn = newGated(make(chan struct{}))
		b = newBatch(conn, nil)
		must(t, b, "x")
		failed := make(chan error, 1)
		go func() {
			_, err := b.Write(make([]byte, 2*batchSize))
			failed <- err
		}()
		synctest.Wait()
		started := time.Now()
		if err := b.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(started); took != flushTimeout {
			t.Errorf("close took %s", took)
		}
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("who waited: %v", err)
		}
	})
}

// TestRecordsGoOutTogether sees what TLS makes of a batch reach the system in one piece.
func TestRecordsGoOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(nil)
		socket := NewSocket(conn)
		b := newBatch(&inRecords{socket}, socket)
		must(t, b, strings.Repeat("x", batchSize))
		synctest.Wait()
		must(t, b, "small")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		got := conn.written()
		if len(got) != 2 || len(got[0]) != batchSize || string(got[1]) != "small" {
			t.Errorf("%d writes", len(got))
		}
	})
}

// inRecords writes as crypto/tls does.
type inRecords struct{ *Socket }

func (r *inRecords) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		var m int
		m, err = r.Socket.Write(p[n:min(len(p), n+maxRecord)])
		n += m
	}
	return n, err
}

func must(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if n, err := io.WriteString(w, text); err != nil || n != len(text) {
		t.Errorf("write: %d, %v", n, err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
