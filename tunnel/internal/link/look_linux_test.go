package link

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// lookingSocket is a socket that looks before each read, and its other end.
func lookingSocket(t *testing.T) (*Socket, *net.TCPConn) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	near, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	s := NewAnsweringSocket(near)
	if s.next == nil {
		t.Skip("one processor")
	}
	return s, far.(*net.TCPConn)
}

// TestALookEnds when there is something to read, and else in time. That it takes no longer is told by the
// shortest of many: any may be held up.
func TestALookEnds(t *testing.T) {
	s, far := lookingSocket(t)
	took := func() time.Duration {
		began := time.Now()
		look(s.raw)
		return time.Since(began)
	}
	if got := took(); got < soon {
		t.Errorf("looked for what did not come for %s", got)
	}
	if _, err := far.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil { // it has come
		t.Fatal(err)
	}
	if err := far.Close(); err != nil { // from now on there is an end to be read
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
	least := soon
	for range 100 {
		least = min(least, took())
	}
	if least >= soon {
		t.Error("looked for what is there all the time")
	}
}

// TestLookingChangesNothingOfWhatIsRead: what is there, what comes while it is looked for, and the end.
func TestLookingChangesNothingOfWhatIsRead(t *testing.T) {
	s, far := lookingSocket(t)
	const words = 100
	reading := make(chan struct{})
	go func() {
		for n := range words {
			if n%2 == 1 {
				<-reading
			}
			if _, err := far.Write([]byte{byte(n)}); err != nil {
				t.Error(err)
			}
		}
		if err := far.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	got := make([]byte, 1)
	for n := range words {
		if n%2 == 1 {
			reading <- struct{}{}
		}
		s.next.quick = habit
		if _, err := s.Read(got); err != nil || got[0] != byte(n) {
			t.Fatalf("read %d: %d, %v", n, got[0], err)
		}
	}
	s.next.quick = habit
	if _, err := s.Read(got); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestAReadLooksFirst where it is the habit.
func TestAReadLooksFirst(t *testing.T) {
	s, _ := lookingSocket(t)
	if err := s.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	s.next.quick = habit
	began := time.Now()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if got := time.Since(began); got < soon {
		t.Errorf("it took %s, in which nobody has looked", got)
	}
}

func TestWhoLooksIsEndedAsWhoReads(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Socket) error
		want error
	}{
		"deadline": {func(s *Socket) error { return s.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"close":    {func(s *Socket) error { return s.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := lookingSocket(t)
			s.next.quick = habit
			ended := make(chan error, 1)
			go func() {
				_, err := s.Read(make([]byte, 1))
				ended <- err
			}()
			if err := c.end(s); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("ended by %v", err)
			}
		})
	}
}
