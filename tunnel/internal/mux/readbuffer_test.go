package mux

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
