package mux

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func newTestBatch(conn net.Conn, below Corked) *batch {
	return newBatch(conn, below, testConfig().WriteTimeout, func(error) { _ = conn.Close() })
}

// say puts in a frame of a stream.
func say(t *testing.T, b *batch, stream uint32, text string) {
	t.Helper()
	for len(text) > 0 {
		n, err := b.data(stream, []byte(text))
		if err != nil {
			t.Error(err)
			return
		}
		text = text[n:]
	}
}

// bodies are the frames' bodies of a write.
func bodies(t *testing.T, write []byte) string {
	t.Helper()
	var all string
	for len(write) > 0 {
		h, ok := parseHeader(write)
		require.True(t, ok, "no frame")
		all += string(write[headerSize : headerSize+h.length])
		write = write[headerSize+h.length:]
	}
	return all
}

// The order of writing is kept.
func TestBatch_SendsWaitingTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newTestBatch(conn, nil)
		for i := range 10 {
			say(t, b, uint32(i), string(rune('a'+i)))
			synctest.Wait()
		}
		conn.gate <- struct{}{}
		synctest.Wait()
		conn.gate <- struct{}{}
		got := conn.written()
		assert.True(t, len(got) == 2 && bodies(t, got[0]) == "a" && bodies(t, got[1]) == "bcdefghij", "written: %q", got)
		assert.NoError(t, b.close())
	})
}

// Data of one stream joins as long as nothing else comes between.
func TestBatch_JoinsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newTestBatch(conn, nil)
		say(t, b, 1, "first")
		synctest.Wait() // it is on its way
		say(t, b, 1, "a")
		say(t, b, 1, "b")
		say(t, b, 2, "c")
		say(t, b, 1, "d")
		b.put(header{kind: frameWindow, flags: flagFIN, stream: 1}, true)
		say(t, b, 1, "e")
		conn.gate <- struct{}{}
		synctest.Wait()
		conn.gate <- struct{}{}
		data := func(stream uint32, body string) string {
			h := header{kind: frameData, stream: stream, length: uint32(len(body))}
			return string(h.append(nil)) + body
		}
		end := string(header{kind: frameWindow, flags: flagFIN, stream: 1}.append(nil))
		want := []string{data(1, "first"), data(1, "ab") + data(2, "c") + data(1, "d") + end + data(1, "e")}
		for i, got := range conn.written() {
			assert.True(t, i < len(want) && string(got) == want[i], "write %d: %q, want %q", i, got, want)
		}
		assert.NoError(t, b.close())
	})
}

// A large write waits until the others are gone, while small frames find room.
func TestBatch_LimitsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newTestBatch(conn, nil)
		say(t, b, 1, "first")
		synctest.Wait()
		large := strings.Repeat("x", 3*batchSize)
		done := make(chan struct{})
		go func() {
			defer close(done)
			say(t, b, 1, large)
		}()
		synctest.Wait()
		assert.False(t, isClosed(done), "more was taken than fits")
		say(t, b, 2, "small")
		assert.True(t, b.put(header{kind: framePing}, true), "no room for a ping")
		conn.gate <- struct{}{}
		synctest.Wait()
		got := conn.written()
		assert.True(t, len(got) == 2 && strings.Contains(string(got[1]), "small"), "what is small has waited for bulk")
		for !isClosed(done) {
			conn.gate <- struct{}{}
			synctest.Wait()
		}
		close(conn.gate)
		assert.NoError(t, b.close())
		var all string
		for _, w := range conn.written() {
			assert.LessOrEqual(t, len(w), MaxWrite, "a write of")
			all += bodies(t, w)
		}
		assert.Equal(t, "first"+large, strings.Replace(all, "small", "", 1), "%d bytes arrived, or in another order", len(all))
	})
}

// The next write fails, and the connection closes so that the reader knows.
func TestBatch_PeerTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(make(chan struct{}))
		b := newTestBatch(conn, nil)
		say(t, b, 1, "x")
		time.Sleep(testConfig().WriteTimeout + time.Millisecond)
		synctest.Wait()
		assert.True(t, isClosed(conn.closed), "the connection is open")
		_, err := b.data(1, []byte("y"))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "the next write")
	})
}

// Sending has failed, and the session is about to end.
func TestOpenStream_AfterFailedWrite(t *testing.T) {
	a, b := net.Pipe()
	s := Client(a, nil, testConfig())
	peer := served(b, nil, testConfig())
	t.Cleanup(func() { _, _ = s.Close(), peer.Close() })
	failure := errors.New("it could not be written")
	s.out.mu.Lock()
	s.out.err = failure
	s.out.mu.Unlock()
	stream, err := s.OpenStream()
	assert.True(t, stream == nil && errors.Is(err, failure), "opened: %v, %v", stream, err)
}

// It does not take long, and it releases writers that wait.
func TestBatch_CloseSendsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newGated(nil)
		b := newTestBatch(conn, nil)
		say(t, b, 1, "farewell")
		assert.NoError(t, b.close())
		got := conn.written()
		assert.True(t, len(got) == 1 && bodies(t, got[0]) == "farewell", "written: %q", got)
		_, err := b.data(1, []byte("x"))
		assert.ErrorIs(t, err, ErrSessionClosed, "write after close")

		conn = newGated(make(chan struct{}))
		b = newTestBatch(conn, nil)
		say(t, b, 1, "x")
		synctest.Wait()
		say(t, b, 1, strings.Repeat("x", batchSize))
		failed := make(chan error, 1)
		go func() {
			_, err := b.data(1, make([]byte, batchSize))
			failed <- err
		}()
		synctest.Wait()
		started := time.Now()
		_ = b.close()
		took := time.Since(started)
		assert.Equal(t, flushTimeout, took, "close took")
		assert.ErrorIs(t, <-failed, ErrSessionClosed, "who waited")
	})
}

// corked is a connection below TLS, in memory.
type corked struct {
	*gated
	held bytes.Buffer
	cork bool
}

func (c *corked) Cork() { c.cork = true }

func (c *corked) Uncork() error {
	c.cork = false
	_, err := c.gated.Write(c.held.Bytes())
	c.held.Reset()
	return err
}

func (c *corked) Write(p []byte) (int, error) {
	if c.cork {
		return c.held.Write(p)
	}
	return c.gated.Write(p)
}

// inRecords writes as crypto/tls does.
type inRecords struct{ *corked }

func (r inRecords) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		var m int
		m, err = r.corked.Write(p[n:min(len(p), n+maxRecord)])
		n += m
	}
	return n, err
}

// The TLS records of a batch reach the system in one write.
func TestBatch_SendsRecordsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &corked{gated: newGated(nil)}
		b := newTestBatch(inRecords{below}, below)
		say(t, b, 1, strings.Repeat("x", batchSize-headerSize))
		synctest.Wait()
		say(t, b, 1, "small")
		assert.NoError(t, b.close())
		got := below.written()
		assert.True(t, len(got) == 2 && len(got[0]) == batchSize && bodies(t, got[1]) == "small", "%d writes", len(got))
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Pings wait in a small buffer. Data that joins them waits in a whole one, behind them.
func TestBatch_SmallBufferAtRest(t *testing.T) {
	b := newBatch(nil, nil, time.Second, func(error) {})
	b.busy = true // somebody sends: what comes waits
	ping := header{kind: framePing, length: 7}
	assert.True(t, b.put(ping, true))
	assert.True(t, b.put(ping, true))
	assert.Equal(t, littleSize, cap(b.waiting))

	body := bytes.Repeat([]byte("x"), 4000)
	n, err := b.data(1, body)
	require.NoError(t, err)
	assert.Equal(t, len(body), n)
	assert.GreaterOrEqual(t, cap(b.waiting), batchSize)
	want := append(ping.append(ping.append(nil)), header{kind: frameData, stream: 1, length: 4000}.append(nil)...)
	assert.Equal(t, append(want, body...), b.waiting)
	assert.True(t, b.put(ping, true))
	assert.GreaterOrEqual(t, cap(b.waiting), batchSize, "a whole one does not become little")
}
