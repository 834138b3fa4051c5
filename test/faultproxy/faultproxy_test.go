package faultproxy_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
)

// patience bounds the wait for what has to happen; silence is how long is looked at
// what must not.
const (
	patience = 2 * time.Minute
	silence  = 150 * time.Millisecond
)

// echo is a wire to a server that sends every line back, and a connection over it.
func echo(t *testing.T) (*faultproxy.Proxy, net.Conn, *bufio.Reader) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	w, err := faultproxy.Listen(t.Context(), "echo", server.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	conn, lines := dial(t, w)
	return w, conn, lines
}

func dial(t *testing.T, w *faultproxy.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", w.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}

func say(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	_, err := io.WriteString(conn, line+"\n")
	require.NoError(t, err)
}

func hear(t *testing.T, conn net.Conn, lines *bufio.Reader, want string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	got, err := lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, want+"\n", got)
}

func hearNothing(t *testing.T, conn net.Conn, lines *bufio.Reader) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(silence)))
	_, err := lines.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxy_Hold(t *testing.T) {
	for name, c := range map[string]faultproxy.Condition{
		"both ways": {HoldUp: true, HoldDown: true}, "up": {HoldUp: true}, "down": {HoldDown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, conn, lines := echo(t)
			say(t, conn, "before")
			hear(t, conn, lines, "before")
			w.Set(c)
			another, theirs := dial(t, w)
			say(t, conn, "meanwhile")
			say(t, another, "hello")
			hearNothing(t, conn, lines)
			hearNothing(t, another, theirs)
			w.Set(faultproxy.Condition{})
			hear(t, conn, lines, "meanwhile")
			hear(t, another, theirs, "hello")
		})
	}
}

func TestProxy_Cut(t *testing.T) {
	w, conn, lines := echo(t)
	say(t, conn, "before")
	hear(t, conn, lines, "before")
	w.Set(faultproxy.Condition{Cut: true})
	over(t, conn, lines)
	// The reset may be there before the dialler has looked whether it is connected.
	if again, err := net.Dial("tcp", w.Addr()); err == nil {
		t.Cleanup(func() { _ = again.Close() })
		over(t, again, bufio.NewReader(again))
	}
	w.Set(faultproxy.Condition{})
	healed, healedLines := dial(t, w)
	say(t, healed, "after")
	hear(t, healed, healedLines, "after")
}

// TestProxy_BalancesTargets has one of two listen no more.
func TestProxy_BalancesTargets(t *testing.T) {
	greeter := func(greeting string) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, greeting+"\n")
				_ = conn.Close()
			}
		}()
		return l
	}
	one, two := greeter("one"), greeter("two")
	w, err := faultproxy.Listen(t.Context(), "balancer", one.Addr().String(), two.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	greeted := func() string {
		conn, lines := dial(t, w)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	assert.ElementsMatch(t, []string{"one\n", "two\n"}, []string{greeted(), greeted()})
	require.NoError(t, one.Close())
	assert.Equal(t, []string{"two\n", "two\n"}, []string{greeted(), greeted()})
}

// over waits for the end of a connection, whichever way it is told.
func over(t *testing.T, conn net.Conn, lines *bufio.Reader) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := lines.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxy_Delay(t *testing.T) {
	w, conn, lines := echo(t)
	w.Set(faultproxy.Condition{Delay: 60 * time.Millisecond})
	start := time.Now()
	say(t, conn, "slow")
	hear(t, conn, lines, "slow")
	assert.GreaterOrEqual(t, time.Since(start), 120*time.Millisecond)
}

func TestProxy_Loss(t *testing.T) {
	w, conn, lines := echo(t)
	w.Set(faultproxy.Condition{Loss: 1})
	start := time.Now()
	say(t, conn, "lost and found")
	hearNothing(t, conn, lines)
	w.Set(faultproxy.Condition{})
	hear(t, conn, lines, "lost and found")
	assert.Greater(t, time.Since(start), silence)
}

func TestProxy_PassesEnd(t *testing.T) {
	_, conn, lines := echo(t)
	say(t, conn, "last words")
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	hear(t, conn, lines, "last words")
	_, err := lines.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}
