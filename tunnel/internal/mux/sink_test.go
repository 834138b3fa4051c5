package mux

import (
	"bytes"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// sink takes at once what it is told to.
type sink struct {
	mu     sync.Mutex
	takes  int // of each TryWrite
	tried  bytes.Buffer
	all    bytes.Buffer
	inLine int // writes that waited
}

func (s *sink) TryWrite(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(s.takes, len(p))
	s.tried.Write(p[:n])
	s.all.Write(p[:n])
	return n
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inLine++
	return s.all.Write(p)
}

func (s *sink) got() (tried, all string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried.String(), s.all.String()
}

// copyTo copies what a stream receives until its end.
func copyTo(to *sink, from *Stream) <-chan error {
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(onlyWriter{to}, from)
		copied <- err
	}()
	return copied
}

// TestBulkIsPassedOn too, and wakes nobody while its sink takes it.
func TestBulkIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		to := &sink{takes: math.MaxInt}
		copied := copyTo(to, far)
		synctest.Wait()
		const size = 3 * initialWindow // which is granted as it is passed on
		if _, err := near.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		_ = near.Close()
		if err := <-copied; err != nil {
			t.Error(err)
		}
		if tried, all := to.got(); len(tried) != size || len(all) != size || to.inLine != 0 {
			t.Errorf("%d of %d bytes were passed on, and %d writes waited", len(tried), len(all), to.inLine)
		}
	})
}

// TestAFrameThatComesInPiecesIsPassedOn when all of it is there.
func TestAFrameThatComesInPiecesIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		to := &sink{takes: math.MaxInt}
		copied := copyTo(to, far)
		synctest.Wait()
		want := strings.Repeat("abcde", 200)
		sent := append(header{kind: frameData, stream: near.id, length: uint32(len(want))}.append(nil), want...)
		for _, piece := range [][]byte{sent[:headerSize+1], sent[headerSize+1 : 500], sent[500:]} {
			if tried, _ := to.got(); tried != "" {
				t.Errorf("%q was passed on by itself", tried)
			}
			if _, err := near.session.conn.Write(piece); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		_ = near.Close()
		if err := <-copied; err != nil {
			t.Error(err)
		}
		if tried, _ := to.got(); tried != want || to.inLine != 0 {
			t.Errorf("%d bytes were passed on, and %d writes waited", len(tried), to.inLine)
		}
	})
}

// TestSmallFramesArePassedOn at once, as far as they go, and the rest comes in order.
func TestSmallFramesArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, pipe)
		to := &sink{takes: 3}
		copied := copyTo(to, far)
		want := ""
		for _, text := range []string{"abc", "defgh", "i", strings.Repeat("x", 3*largeChunk), "end"} {
			synctest.Wait()
			if _, err := near.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			want += text
		}
		_ = near.Close()
		if err := <-copied; err != nil {
			t.Error(err)
		}
		tried, all := to.got()
		if passed := strings.ReplaceAll(tried, "x", ""); all != want || passed != "abcdefiend" || passed == tried {
			t.Errorf("at once %q, and %d bytes in all", tried, len(all))
		}
	})
}

// onlyWriter hides other ways into a sink than it has.
type onlyWriter struct{ *sink }
