package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	wait "github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/memnet"
)

// pair is both ends of a WebSocket.
func pair(t *testing.T) (near, far *Channels) {
	t.Helper()
	accepted := make(chan *websocket.Conn, 1)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		assert.NoError(t, err)
		accepted <- ws
	})}
	pipes, served := memnet.New(), make(chan error, 1)
	go func() { served <- srv.Serve(pipes) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := pipes.Dial(ctx, network, address)
		return newQueue(conn), err
	}}}
	ws, _, err := websocket.Dial(t.Context(), "ws://memory", &websocket.DialOptions{HTTPClient: client})
	require.NoError(t, err)
	near, far = NewChannels(ws, time.Minute), NewChannels(wait.Receive(t, accepted, "the WebSocket"), time.Minute)
	t.Cleanup(func() {
		_, _ = near.ws.CloseNow(), far.ws.CloseNow()
		require.NoError(t, srv.Close())
		require.ErrorIs(t, wait.Receive(t, served, "the end of the server"), http.ErrServerClosed)
	})
	return near, far
}

// queue is a connection that takes what comes before anybody reads it, as TCP does.
type queue struct {
	net.Conn
	came chan []byte
	rest []byte
}

func newQueue(conn net.Conn) *queue {
	q := &queue{Conn: conn, came: make(chan []byte, 1000)}
	go func() {
		defer close(q.came)
		for {
			b := make([]byte, 4096)
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			q.came <- b[:n]
		}
	}()
	return q
}

// Read implements io.Reader.
func (q *queue) Read(p []byte) (int, error) {
	if len(q.rest) == 0 {
		var ok bool
		if q.rest, ok = <-q.came; !ok {
			return 0, io.EOF
		}
	}
	n := copy(p, q.rest)
	q.rest = q.rest[n:]
	return n, nil
}

// The peer falls silent, or closes while what it had sent is still unread.
func TestChannels_NoticeGonePeer(t *testing.T) {
	for name, leave := range map[string]func(near, far *Channels){
		"silent": func(*Channels, *Channels) {}, // nobody reads there, so nobody answers
		"closed": func(near, far *Channels) {
			near.busy.Store(true)
			assert.NoError(t, far.ws.CloseNow())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pair(t)
				leave(near, far)
				if name == "silent" {
					go func() { _ = near.Pump(context.Background(), func(byte, []byte, bool) error { return nil }) }()
				}
				began := time.Now()
				ctx, gone := context.WithCancelCause(t.Context())
				near.Attend(ctx, gone)
				require.ErrorContains(t, context.Cause(ctx), "the other side is gone")
				assert.LessOrEqual(t, time.Since(began), PingAfter+PingTimeout)
			})
		})
	}
}

// The peer answers pings, but nobody reads the answers.
func TestChannels_BusyReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		pumped := make(chan error, 1)
		go func() { pumped <- far.Pump(context.Background(), func(byte, []byte, bool) error { return nil }) }()
		near.busy.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		near.Attend(ctx, func(err error) { t.Error(err) })
		require.NoError(t, near.ws.CloseNow())
		require.Error(t, <-pumped)
	})
}

func TestChannels_Status(t *testing.T) {
	for code, err := range map[int]error{0: nil, 3: nil, 255: nil, -1: problem.Errorf(problem.Unavailable, "wait", "not now")} {
		near, far := pair(t)
		go near.Finish(max(code, 0), err)
		var got []byte
		_ = far.Pump(t.Context(), func(channel byte, p []byte, _ bool) error {
			assert.EqualValues(t, ChannelStatus, channel)
			got = bytes.Clone(p)
			return nil
		})
		exit, failed := readStatus(got)
		assert.Equal(t, max(code, 0), exit)
		if err != nil {
			known := &runnerapi.Error{}
			require.ErrorAs(t, failed, &known)
			assert.Equal(t, "wait", known.Fix)
		} else {
			require.NoError(t, failed)
		}
	}
}

// FuzzStatus reads what an agent might send at the end.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"status":"Success"}`))
	f.Add([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`))
	f.Add([]byte(`{"status":"Failure","problem":{"code":"x","detail":"y"}}`))
	f.Add([]byte(`{"problem":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		code, err := readStatus(text)
		assert.True(t, err == nil || code == 0, "%q: both a code and an error", text)
		var known *runnerapi.Error
		assert.True(t, !errors.As(err, &known) || known.Error() != "", "%q: an error that says nothing", text)
	})
}

// When all followed streams of one connection stop reading, what they hold of its window leaves
// room.
func TestWindows_LeaveRoom(t *testing.T) {
	require.Less(t, MaxStreams*FollowedWindow, ConnectionWindow)
}

func TestReadEvents_RoundTrip(t *testing.T) {
	var b bytes.Buffer
	sent := runnerapi.AppEvent{ID: "1", Type: runnerapi.EventDiagnosis, Name: "web", Status: runnerapi.AppStatus{Diagnosis: &runnerapi.Diagnosis{Message: "two\nlines: a"}}}
	require.NoError(t, WriteEvent(&b, string(sent.Type), sent.ID, sent))
	b.WriteString(": a heartbeat\n\n")
	require.NoError(t, WriteEvent(&b, ErrorEvent, "", problem.Errorf(problem.Unavailable, "again", "stopping")))
	var got []runnerapi.AppEvent
	err := ReadEvents(&b, func(e runnerapi.AppEvent) error { got = append(got, e); return nil })
	known := &runnerapi.Error{}
	require.ErrorAs(t, err, &known)
	assert.Equal(t, problem.Unavailable, known.Code)
	assert.Equal(t, []runnerapi.AppEvent{sent}, got)
}

func TestReadEvents_LimitsLine(t *testing.T) {
	err := ReadEvents(io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat("x", maxEventLine+1))), nil)
	assert.ErrorIs(t, err, errEndless)
}

func FuzzReadEvents(f *testing.F) {
	f.Add("id: 1\nevent: phase\ndata: {\"id\":\"1\"}\n\n")
	f.Add("event: error\ndata: {\"status\":503}\n\n")
	f.Add(": hello\n\ndata: x\n\n")
	f.Add("data\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_ = ReadEvents(strings.NewReader(text), func(runnerapi.AppEvent) error { n++; return nil })
		require.LessOrEqual(t, n, strings.Count(text, "data"), "%d events out of %q", n, text)
	})
}
