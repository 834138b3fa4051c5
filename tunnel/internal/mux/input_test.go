package mux

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestSession_EndsOnProtocolError(t *testing.T) {
	open := header{kind: frameWindow, flags: flagSYN, stream: 1}.append(nil)
	for name, said := range map[string][]byte{
		"another version":         {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"another type":            {0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"more than the window":    header{kind: frameData, stream: 1, length: initialWindow + 1}.append(open),
		"a stream twice":          append(bytes.Clone(open), open...),
		"a stream of ours":        header{kind: frameWindow, flags: flagSYN, stream: 2}.append(nil),
		"it says we did it wrong": header{kind: frameGoAway, length: goAwayProtocol}.append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := line(t)
			s := taking(served, a)
			defer func() { _ = s.Close() }()
			_, err := b.Write(said)
			require.NoError(t, err)
			await.Closed(t, s.CloseChan(), "the session's end")
			assert.ErrorIs(t, s.ended(), ErrProtocol)
		})
	}
}

// A peer that asks and never reads is answered up to a limit, and no more is kept for it.
func TestPing_LimitsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		s := taking(served, a)
		for i := range uint32(3 * mostWaiting / headerSize) {
			_, err := b.Write(header{kind: framePing, flags: flagSYN, length: i}.append(nil))
			require.NoError(t, err)
		}
		s.out.mu.Lock()
		waiting := len(s.out.waiting)
		s.out.mu.Unlock()
		assert.LessOrEqual(t, waiting, mostWaiting)
		_ = b.Close()
		_ = s.Close()
	})
}

func TestWindow_NeverShrinks(t *testing.T) {
	near, _ := pair(t, line)
	near.moreRoom(1<<32 - 1)
	near.mu.Lock()
	defer near.mu.Unlock()
	assert.True(t, near.room >= initialWindow, "room for %d", near.room)
}

// script is a connection whose other end says what is in it, and nothing more.
type script struct {
	net.Conn
	in *bytes.Reader
}

func (s *script) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (*script) Write(p []byte) (int, error)      { return len(p), nil }
func (*script) Close() error                     { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

// onlyReader hides other ways out of a stream than it has.
type onlyReader struct{ io.Reader }

// FuzzSession has a session hear anything, whether its streams are read or copied.
func FuzzSession(f *testing.F) {
	open := header{kind: frameWindow, flags: flagSYN, stream: 1}.append(nil)
	add := func(said []byte) {
		f.Add(said, true)
		f.Add(said, false)
	}
	add(append(header{kind: frameData, stream: 1, length: 3}.append(open), "abc"...))
	add(header{kind: frameData, flags: flagFIN | flagRST, stream: 1, length: 1 << 31}.append(open))
	add(append(header{kind: frameData, stream: 1, length: 3}.append(header{kind: frameData, flags: flagSYN, stream: 1}.append(nil)), "abc"...))
	add(header{kind: framePing, flags: flagSYN, length: 7}.append(nil))
	add(header{kind: frameGoAway}.append(header{kind: frameWindow, flags: flagACK, stream: 1, length: 1<<32 - 1}.append(open)))
	f.Fuzz(func(t *testing.T, said []byte, reads bool) {
		s := taking(served, &script{in: bytes.NewReader(said)})
		read := 0
		for {
			stream, err := s.acceptStream()
			if err != nil {
				break
			}
			var got bytes.Buffer
			if reads {
				_, _ = got.ReadFrom(onlyReader{stream})
			} else {
				_, _ = stream.WriteTo(&got)
			}
			read += got.Len()
			_ = stream.Close()
		}
		_ = s.Close()
		assert.LessOrEqual(t, read, len(said))
	})
}

// Reads frames of all sizes, in pieces of all sizes, while the session goes idle and comes back.
func TestInput_LosesNothing(t *testing.T) {
	for name, pieces := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"half":  iotest.HalfReader, "bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var sent bytes.Buffer
			var bodies [][]byte
			for i := range 400 {
				var body []byte
				kind := framePing
				if random.IntN(2) == 0 {
					kind, body = frameData, bytes.Repeat([]byte{byte(i)}, 1+random.IntN(1<<random.IntN(15)))
				}
				sent.Write(header{kind: kind, length: uint32(len(body))}.append(nil))
				sent.Write(body)
				bodies = append(bodies, body)
			}
			rested := 0
			s := &Session{in: newInput(pieces(&sent))}
			for i, want := range bodies {
				h, err := s.readHeader()
				require.NoError(t, err)
				require.Equal(t, len(want), int(h.length), "frame %d: %+v, %v, want %d bytes", i, h, err, len(want))
				got := make([]byte, h.length)
				if _, err := io.ReadFull(s.in, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("frame %d: %v", i, err)
				}
				if s.in.whole == nil {
					rested++
				}
			}
			if _, err := s.readHeader(); err != io.EOF { //nolint:errorlint // as it was given
				t.Errorf("at the end: %v", err)
			}
			assert.True(t, rested != 0 && rested != len(bodies), "it was at rest at %d of %d frames", rested, len(bodies))
		})
	}
}

// Data goes through a session, and then a ping of each end.
func TestInput_NoBufferAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		go func() { _, _ = near.Write(make([]byte, 1<<20)) }()
		_, err := io.ReadFull(far, make([]byte, 1<<20))
		require.NoError(t, err)
		time.Sleep(2 * firstPing)
		synctest.Wait()
		assert.True(t, near.session.in.whole == nil && far.session.in.whole == nil, "there is a buffer after a ping")
	})
}
