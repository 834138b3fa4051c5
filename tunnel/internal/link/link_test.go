package link

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	golog "github.com/fatedier/golib/log"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	assert.False(t, ok, "EOF is not a refusal")
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

// Looks for agents and instances that share a name on the wire.
func TestNames_Unique(t *testing.T) {
	runs, proxies := map[string]string{}, map[string]string{}
	for _, agentID := range []string{"a", "a.b", "a.agent", "a.agent-x", "a\x00b", "agent"} {
		for _, instance := range []string{"", "b", "b.c", "agent", "pod-1", "Pod-1"} {
			assert.True(t, ValidInstance(instance), "instance %q", instance)
			who := agentID + " / " + instance
			run, proxy := RunID(agentID, instance), ProxyName(agentID, instance)
			assert.True(t, runs[run] == "" && proxies[proxy] == "", "%q has the names of %q%q", who, runs[run], proxies[proxy])
			assert.True(t, strings.HasPrefix(proxy, agentID+"."), "%q is called %q, which frpc cannot send", who, proxy)
			runs[run], proxies[proxy] = who, who
		}
	}
}

func TestValidInstance_RefusesInvalid(t *testing.T) {
	for _, name := range []string{"a\x00b", "a b", "-a", "a.", "ä", "a/b", strings.Repeat("a", 254)} {
		assert.False(t, ValidInstance(name), "%q is allowed", name)
	}
}
