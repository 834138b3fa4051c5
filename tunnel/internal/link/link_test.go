package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	golog "github.com/fatedier/golib/log"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// muted is a connection that can lose all that is written to it.
type muted struct {
	net.Conn
	now atomic.Bool
}

func (m *muted) Write(p []byte) (int, error) {
	if m.now.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// The connection dies just after an end has answered a ping, when it takes longest.
func TestKeepAlive_Within14Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		near, far := &muted{Conn: a}, &muted{Conn: b}
		server := Server(far, nil, nil)
		go func() { _ = server.Serve() }()
		sessions := []*mux.Session{Client(near, nil, nil), server}
		time.Sleep(time.Second) // by then either end has answered a ping
		near.now.Store(true)
		far.now.Store(true)
		died := time.Now()
		for _, s := range sessions {
			<-s.CloseChan()
			assert.LessOrEqual(t, time.Since(died), 14*time.Second, "noticed after")
			_ = s.Close()
		}
	})
}

// pair is one stream seen from both ends.
func pair(t *testing.T) (client, server *Stream) {
	t.Helper()
	a, b := net.Pipe()
	accepted := make(chan *mux.Stream, 1)
	near, far := Client(a, nil, nil), Server(b, nil, func(opened *mux.Stream) { accepted <- opened })
	go func() { _ = far.Serve() }()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	s, err := near.OpenStream()
	require.NoError(t, err)
	return NewStream(s, nil), NewStream(await.Receive(t, accepted, "a stream"), nil)
}

func TestStream_IsNetConn(t *testing.T) {
	client, _ := pair(t)
	require.NoError(t, client.SetReadDeadline(time.Now()))
	_, err := client.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.True(t, errors.As(err, &timeout) && timeout.Timeout(), "past the deadline: %v", err)
	require.NoError(t, client.Close())
	_, err = client.Write([]byte("x"))
	assert.ErrorIs(t, err, net.ErrClosed, "after closing")
}

func TestStream_ReportsCloseOnce(t *testing.T) {
	client, _ := pair(t)
	var told atomic.Int32
	s := NewStream(client.Stream, func() { told.Add(1) })
	for range 3 {
		assert.NoError(t, s.Close())
	}
	assert.EqualValues(t, 1, told.Load())
}

func TestParseRefusal(t *testing.T) {
	const reason = "a reason: with. signs; and more"
	for text, want := range map[string]Refused{
		Refusal(reason, true):                 {Reason: reason, Final: true},
		Refusal(reason, false):                {Reason: reason},
		Later(reason, 90*time.Second):         {Reason: reason, Within: 90 * time.Second},
		Later(reason, 200*time.Millisecond):   {Reason: reason, Within: time.Second},
		Later(reason, 1e6*time.Second):        {Reason: reason + "; try again within 1000000 s"},
		Later("", 2*time.Second):              {Within: 2 * time.Second},
		Refusal("; try again within x", true): {Reason: "; try again within x", Final: true},
	} {
		for _, around := range []string{"%s", "log in: %s"} {
			got, ok := ParseRefusal(fmt.Sprintf(around, text))
			assert.True(t, ok && got == want, "%q: %+v, %v", text, got, ok)
		}
	}
	_, ok := ParseRefusal("EOF")
	assert.False(t, ok, "EOF is no refusal")
}

func FuzzParseRefusal(f *testing.F) {
	f.Add(Refusal("revoked", true))
	f.Add(Later("busy", time.Minute))
	f.Fuzz(func(t *testing.T, text string) {
		told, ok := ParseRefusal(text)
		assert.True(t, told.Within >= 0 && told.Within <= 1e6*time.Second && (ok || told == (Refused{})), "%q: %+v", text, told)
	})
}

func TestGate_Shut(t *testing.T) {
	var g Gate
	require.True(t, g.Enter(), "a new gate is shut")
	shut := make(chan struct{})
	go func() { g.Shut(); close(shut) }()
	for g.Enter() { // until Shut has begun
		g.Leave()
	}
	select {
	case <-shut:
		t.Fatal("shut while somebody is inside")
	default:
	}
	g.Leave()
	await.Closed(t, shut, "the gate to be shut")
	assert.False(t, g.Go(func() { t.Error("ran behind a shut gate") }), "entered a shut gate")
}

func TestFRPLog_Levels(t *testing.T) {
	var out bytes.Buffer
	w := frpWriter{zerolog.New(&out)}
	for _, level := range []golog.Level{golog.InfoLevel, golog.WarnLevel, golog.ErrorLevel} {
		_, err := w.WriteLog([]byte("2026-01-02 03:04:05.678 [W] [abc] proxy \"x\" \n"), level, time.Time{})
		require.NoError(t, err)
	}
	got := out.String()
	if strings.Count(got, `"level":"debug"`) != 2 || strings.Count(got, `"level":"warn"`) != 1 ||
		!strings.Contains(got, `"message":"[abc] proxy \"x\""`) {
		t.Errorf("log %s", got)
	}
}
