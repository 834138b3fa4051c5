package mux

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func testConfig() Config {
	return Config{KeepAlive: 5 * time.Second, WriteTimeout: 9 * time.Second, MaxWindow: 24 << 20, CloseTimeout: time.Minute}
}

// end is one end of a connection, ours or that of hashicorp's library, whose protocol it is.
type end interface {
	Open() (net.Conn, error)
	accept() (net.Conn, error)
	Ping() (time.Duration, error)
	NumStreams() int
	Close() error
}

// served is a Server that is read.
func served(conn net.Conn, below Corked, cfg Config) *Session {
	s := Server(conn, below, cfg)
	go func() { _ = s.Serve() }()
	return s
}

// accepting is a session whose streams of the other end are accepted one by one.
type accepting struct {
	*Session
	streams <-chan *Stream
}

func taking(begin func(net.Conn, Corked, Config) *Session, conn net.Conn) accepting {
	streams := make(chan *Stream, 1<<12)
	cfg := testConfig()
	cfg.Accept = func(s *Stream) { streams <- s }
	return accepting{begin(conn, nil, cfg), streams}
}

func (a accepting) acceptStream() (*Stream, error) {
	select {
	case s := <-a.streams:
		return s, nil
	case <-a.CloseChan():
		return nil, a.ended()
	}
}

type ours struct{ accepting }

func (e ours) accept() (net.Conn, error) { return e.acceptStream() }

type theirs struct{ *yamux.Session }

func (e theirs) accept() (net.Conn, error) { return e.Accept() }

func newTheirs(t *testing.T, conn net.Conn, make func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) end {
	t.Helper()
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize, cfg.LogOutput = 24<<20, io.Discard
	s, err := make(conn, cfg)
	require.NoError(t, err)
	return theirs{s}
}

// kinds are who may be at the ends.
var kinds = map[string]func(t *testing.T, a, b net.Conn) (client, server end){
	"ours": func(_ *testing.T, a, b net.Conn) (client, server end) {
		return ours{taking(Client, a)}, ours{taking(served, b)}
	},
	"to theirs": func(t *testing.T, a, b net.Conn) (client, server end) {
		return ours{taking(Client, a)}, newTheirs(t, b, yamux.Server)
	},
	"of theirs": func(t *testing.T, a, b net.Conn) (client, server end) {
		return newTheirs(t, a, yamux.Client), ours{taking(served, b)}
	},
}

// line is a TCP connection, seen from both ends.
func line(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	a, err = new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// pipe is one in memory.
func pipe(testing.TB) (a, b net.Conn) { return net.Pipe() }

// pair is one stream seen from both ends.
func pair(t testing.TB, connect func(testing.TB) (a, b net.Conn)) (near, far *Stream) {
	t.Helper()
	a, b := connect(t)
	client, server := Client(a, nil, testConfig()), taking(served, b)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	near, err := client.OpenStream()
	require.NoError(t, err)
	far, err = server.acceptStream()
	require.NoError(t, err)
	return near, far
}

// Many streams run at once, both ways, with each kind of peer, and nothing is left of them.
func TestSession_AllArrives(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			a, b := line(t)
			client, server := kind(t, a, b)
			var all sync.WaitGroup
			for from, to := range map[end]end{client: server, server: client} {
				for i := range 20 {
					all.Go(func() {
						assert.NoError(t, ask(from, 1000+i*i*1000))
					})
					all.Go(func() {
						assert.NoError(t, echo(to))
					})
				}
			}
			all.Wait()
			for _, e := range []end{client, server} {
				_, err := e.Ping()
				assert.NoError(t, err)
			}
			await.Until(t, "no stream is left", func() bool { return client.NumStreams() == 0 && server.NumStreams() == 0 })
			if err := errors.Join(client.Close(), server.Close()); err != nil {
				t.Log(err) // the other end has hung up first
			}
		})
	}
}

// patience ends a test in which something does not come at all.
const patience = 3 * time.Minute

// ask sends that many bytes on its own stream and wants them back.
func ask(e end, n int) error {
	conn, err := e.Open()
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	want := make([]byte, n)
	_, _ = rand.Read(want)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(want)
		sent <- err
	}()
	got := make([]byte, n)
	_, err = io.ReadFull(conn, got)
	if err == nil && sha256.Sum256(got) != sha256.Sum256(want) {
		err = fmt.Errorf("%d bytes came back changed", n)
	}
	return errors.Join(err, <-sent, conn.Close())
}

// echo answers one stream until its other end is closed.
func echo(e end) error {
	conn, err := e.accept()
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = io.Copy(conn, conn)
	return errors.Join(err, conn.Close())
}

func TestStream_CloseAfterData(t *testing.T) {
	near, far := pair(t, line)
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	wrote := make(chan error, 1)
	go func() {
		_, err := near.Write(want)
		wrote <- errors.Join(err, near.Close())
	}()
	got, err := io.ReadAll(far)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, want), "read %d bytes", len(got))
	assert.NoError(t, await.Receive(t, wrote, "the end of writing"))
}

// net/http and crypto/tls look for these errors.
// TestStream_CloseWrite ends one direction. Close then resets the other, in which the far end would
// write in vain.
func TestStream_CloseWrite(t *testing.T) {
	for _, goesOn := range []bool{true, false} {
		near, far := pair(t, line)
		_, err := io.WriteString(near, "there")
		require.NoError(t, errors.Join(err, near.CloseWrite(), near.CloseWrite()))
		_, err = io.WriteString(near, "more")
		require.ErrorIs(t, err, net.ErrClosed)
		got, err := io.ReadAll(far)
		require.NoError(t, err)
		assert.Equal(t, "there", string(got))
		if goesOn {
			_, err = io.WriteString(far, "and back")
			require.NoError(t, errors.Join(err, far.Close()))
			got, err = io.ReadAll(near)
			require.NoError(t, err)
			assert.Equal(t, "and back", string(got))
		}
		require.NoError(t, near.Close())
		await.Until(t, "no stream is left", func() bool {
			return near.Session().NumStreams()+far.Session().NumStreams() == 0
		})
		_, err = io.WriteString(far, "lost")
		require.Error(t, err)
	}
}

func TestStream_IsNetConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		for _, at := range []time.Duration{-time.Second, time.Second} {
			_ = near.SetDeadline(time.Now().Add(at))
			_, err := near.Read(make([]byte, 1))
			var timeout net.Error
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.True(t, errors.As(err, &timeout) && timeout.Timeout(), "read past the deadline: %v", err)
			if n, err := near.Write(make([]byte, 2*initialWindow)); !errors.Is(err, os.ErrDeadlineExceeded) || n > initialWindow {
				t.Errorf("write past the deadline: %d, %v", n, err)
			}
		}
		_ = near.SetDeadline(time.Time{})
		read := make(chan error, 1)
		go func() {
			_, err := near.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		_ = near.SetReadDeadline(time.Unix(1, 0)) // as net/http ends its background read
		assert.ErrorIs(t, <-read, os.ErrDeadlineExceeded, "a read that was ended")
		assert.NoError(t, errors.Join(near.Close(), near.Close()))
		_, err := near.Write([]byte("x"))
		assert.ErrorIs(t, err, net.ErrClosed, "write after Close")
		_, err = near.Read(make([]byte, 1))
		assert.ErrorIs(t, err, net.ErrClosed, "read after Close")
		_ = far.session.Close()
		_, err = io.Copy(io.Discard, far)
		assert.True(t, errors.Is(err, ErrSessionClosed) || err == nil, "read after the session's end: %v", err)
	})
}

func TestStream_LostConnectionIsNotEOF(t *testing.T) {
	near, far := pair(t, line)
	_ = far.session.conn.Close()
	if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	_, err := near.session.OpenStream()
	assert.Error(t, err, "a stream of a session that is over")
}

func TestStream_StalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := pair(t, pipe)
		_ = near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := near.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n != initialWindow {
			t.Errorf("took %d, %v: the window is %d and has no reason to grow", n, err, initialWindow)
		}
		_, err := near.session.Ping()
		assert.NoError(t, err)
	})
}

// It grows with nothing else.
func TestWindow_GrowsWithRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := pair(t, pipe)
		time.Sleep(firstPing + time.Millisecond)
		synctest.Wait()
		require.Zero(t, near.session.life.roundTrip())
		use := func(every time.Duration) uint32 {
			for range 20 {
				time.Sleep(every)
				near.mu.Lock()
				near.credit -= near.window / 2 // received, and read
				near.renew()
				near.mu.Unlock()
			}
			return near.window
		}
		assert.EqualValues(t, initialWindow, use(2*leastTrip), "half of it every 2 ms")
		near.session.life.seen = 0
		near.session.life.took(40 * time.Millisecond)
		near.session.life.took(time.Second) // something was in its way
		assert.EqualValues(t, initialWindow, use(81*time.Millisecond), "half of it every two round trips")
		assert.Equal(t, testConfig().MaxWindow, use(79*time.Millisecond), "half of it in less than two round trips")
	})
}

// Minutes of bulk do not make it longer; another line does.
func TestRoundTrip_IgnoresBulk(t *testing.T) {
	var l heartbeat
	pings := func(n int, trip time.Duration) time.Duration {
		for range n {
			l.took(trip)
		}
		return l.roundTrip()
	}
	assert.Zero(t, l.roundTrip(), "before the first answer")
	assert.Equal(t, time.Second, pings(epoch-1, time.Second), "of one second each")
	assert.Equal(t, time.Millisecond, pings(1, time.Millisecond), "with one of a millisecond")
	assert.Equal(t, time.Millisecond, pings(epoch, time.Second), "after minutes of bulk")
	assert.Equal(t, time.Second, pings(epoch, time.Second), "of another line")
}

// far is a pipe on which every byte arrives that much later, in virtual time.
func far(t *testing.T, oneWay time.Duration) (a, b net.Conn) {
	t.Helper()
	a, nearA := net.Pipe()
	nearB, b := net.Pipe()
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	later := func(to, from net.Conn) {
		type piece struct {
			due  time.Time
			data []byte
		}
		wire := make(chan piece, 1<<16)
		all.Go(func() {
			for p := range wire {
				time.Sleep(time.Until(p.due))
				if _, err := to.Write(p.data); err != nil {
					_ = from.Close()
				}
			}
			_ = to.Close()
		})
		defer close(wire)
		for {
			p := make([]byte, MaxWrite)
			n, err := from.Read(p)
			if err != nil {
				return
			}
			wire <- piece{time.Now().Add(oneWay), p[:n]}
		}
	}
	all.Go(func() { later(nearB, nearA) })
	all.Go(func() { later(nearA, nearB) })
	return a, b
}

// A connection that has carried small requests is the usual one with HTTP/2, and what is left of
// its window is any part of it.
func TestWindow_GrowsAfterSmallRequests(t *testing.T) {
	const trip, bulk = 40 * time.Millisecond, 64 << 20
	for _, c := range []struct {
		before int
		down   bool
	}{{before: 0, down: true}, {before: 30 << 10, down: false}, {before: 200 << 10, down: true}} {
		synctest.Test(t, func(t *testing.T) {
			from, to := pair(t, func(testing.TB) (a, b net.Conn) { return far(t, trip/2) })
			if c.down {
				from, to = to, from
			}
			time.Sleep(time.Second) // until the round trip is known
			message := make([]byte, 1<<10)
			for range c.before / len(message) {
				_, err := from.Write(message)
				require.NoError(t, err)
				_, err = io.ReadFull(to, message)
				require.NoError(t, err)
			}
			began := time.Now()
			go func() {
				_, err := from.Write(make([]byte, bulk))
				_ = from.Close()
				assert.NoError(t, err)
			}()
			n, err := io.Copy(io.Discard, to)
			assert.True(t, n == bulk && err == nil, "%d bytes, %v", n, err)
			if most := 24 * trip; time.Since(began) > most || to.window != testConfig().MaxWindow {
				t.Errorf("after %d KiB: %s, and a window of %d KiB", c.before>>10, time.Since(began), to.window>>10)
			}
		})
	}
}

// A ping and its answer may take this long.
func TestKeepAlive_NoticesDeadPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, b) }() // it takes all and says nothing
		defer func() { _ = b.Close() }()
		s := Client(a, nil, testConfig())
		began := time.Now()
		<-s.CloseChan()
		assert.LessOrEqual(t, time.Since(began), 14*time.Second, "noticed after")
		assert.ErrorIs(t, s.ended(), ErrKeepAlive)
	})
}

func TestKeepAlive_KeepsLivePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		time.Sleep(3 * time.Hour)
		for _, s := range []*Session{near.session, far.session} {
			select {
			case <-s.CloseChan():
				t.Error(s.ended())
			default:
			}
		}
	})
}

func TestStream_ForgottenAfterCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		_ = near.Close()
		synctest.Wait()
		assert.Equal(t, 1, near.session.NumStreams())
		time.Sleep(testConfig().CloseTimeout + time.Second)
		assert.Zero(t, near.session.NumStreams(), "streams are kept")
		_, err := far.Write([]byte("x"))
		assert.ErrorIs(t, err, ErrStreamReset, "the other end")
	})
}

// Nothing is left of the streams, and the session continues.
func TestSession_RefusesWithoutAccept(t *testing.T) {
	a, b := line(t)
	client, server := Client(a, nil, testConfig()), served(b, nil, testConfig())
	defer func() { _, _ = client.Close(), server.Close() }()
	for range 2 * backlog {
		stream, err := client.OpenStream()
		require.NoError(t, err)
		_, err = stream.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrStreamReset)
		_ = stream.Close()
	}
	_, err := client.Ping()
	require.NoError(t, err)
	assert.Zero(t, server.NumStreams(), "streams are left")
}
