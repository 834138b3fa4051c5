package app_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestExec_InRealPod reaches into a real pod: commands with input, output, exit codes and a
// terminal, and its ports.
func TestExec_InRealPod(t *testing.T) {
	t.Parallel()
	env, e, k := onNodes(t, "web")
	image := helloImage(t, env)
	deploy(t, e, k, runnerapi.AppSpec{Image: image, Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080)})
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)
	defer func() { // the node's CPU is wanted by others
		require.NoError(t, e.Delete(t.Context(), k, byTest))
		assert.True(t, polled(podPatience, func() bool { return len(podsOf(t, env, k)) == 0 }), "its pods go")
	}()
	t.Run("exec", func(t *testing.T) { execInside(t, e, k) })
	t.Run("terminal", func(t *testing.T) { terminalInside(t, e, k) })
	t.Run("resize", func(t *testing.T) { resizeInside(t, e, k) })
	t.Run("port", func(t *testing.T) { forwardInside(t, e, k) })
	t.Run("refusals", func(t *testing.T) { refusalsInside(t, e, k) })
}

func execInside(t *testing.T, e *app.Engine, k runnerapi.Key) {
	run := func(s runnerapi.ExecStreams, command ...string) int {
		call, err := e.Exec(t.Context(), k, runnerapi.ExecOptions{Command: command, Stdin: s.Stdin != nil})
		require.NoError(t, err)
		code, err := call(t.Context(), s)
		require.NoError(t, err)
		return code
	}
	var out, errs bytes.Buffer
	assert.Zero(t, run(runnerapi.ExecStreams{Stdout: &out, Stderr: &errs}, "/hello", "-get", "http://127.0.0.1:8080/"))
	assert.Contains(t, out.String(), "hello")
	assert.Equal(t, 7, run(runnerapi.ExecStreams{Stdout: io.Discard, Stderr: io.Discard}, "/hello", "-listen", "127.0.0.1:0", "-crash-after", "1ms", "-exit-code", "7"))

	const size = 16 << 20
	sent, got := sha256.New(), sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	assert.Zero(t, run(runnerapi.ExecStreams{Stdin: in, Stdout: got, Stderr: io.Discard}, "/hello", "-cat"))
	assert.Equal(t, sent.Sum(nil), got.Sum(nil), "every byte, both ways")

	// What runs for ever ends with its caller.
	call, err := e.Exec(t.Context(), k, runnerapi.ExecOptions{Command: []string{"/hello", "-listen", "127.0.0.1:0", "-flood-logs"}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	first := &answered{do: cancel}
	_, err = call(ctx, runnerapi.ExecStreams{Stdout: first, Stderr: io.Discard})
	require.ErrorIs(t, err, context.Canceled)
}

// answered does something at the first byte.
type answered struct{ do func() }

func (a *answered) Write(p []byte) (int, error) {
	a.do()
	return len(p), nil
}

// terminal is a command that runs on a terminal.
type terminal struct {
	typed *io.PipeWriter
	sizes chan runnerapi.TerminalSize
	out   chan string
	done  chan error
}

func onTerminal(t *testing.T, e *app.Engine, k runnerapi.Key, command ...string) *terminal {
	t.Helper()
	call, err := e.Exec(t.Context(), k, runnerapi.ExecOptions{Command: command, Stdin: true, TTY: true})
	require.NoError(t, err)
	in, typed := io.Pipe()
	at := &terminal{typed, make(chan runnerapi.TerminalSize, 2), make(chan string, 64), make(chan error, 1)}
	go func() {
		_, err := call(t.Context(), runnerapi.ExecStreams{Stdin: in, Stdout: chanWriter(at.out), Resize: at.sizes})
		_ = in.Close() // nobody reads what is typed any more
		at.done <- err
	}()
	return at
}

func (at *terminal) write(t *testing.T, text string) {
	t.Helper()
	_, err := at.typed.Write([]byte(text))
	require.NoError(t, err)
}

// ends types Ctrl-D.
func (at *terminal) ends(t *testing.T) {
	t.Helper()
	at.write(t, "\x04")
	require.NoError(t, await.Receive(t, at.done, "the terminal's end"))
}

func terminalInside(t *testing.T, e *app.Engine, k runnerapi.Key) {
	at := onTerminal(t, e, k, "/hello", "-cat")
	at.sizes <- runnerapi.TerminalSize{Width: 100, Height: 40}
	at.write(t, "hi\r")
	said := ""
	for said != "hi\r\nhi\r\n" { // the terminal's echo, then the program's answer
		said += await.Receive(t, at.out, "more than "+said)
	}
	at.ends(t)
}

// resizeInside changes a terminal's size, which what runs on it sees each time.
func resizeInside(t *testing.T, e *app.Engine, k runnerapi.Key) {
	at := onTerminal(t, e, k, "/hello", "-size")
	for _, size := range []runnerapi.TerminalSize{{Width: 100, Height: 40}, {Width: 61, Height: 7}} {
		at.sizes <- size
		want, said := fmt.Sprintf("%dx%d\r\n", size.Width, size.Height), ""
		for !strings.Contains(said, want) { // it may be asked before it has become so
			at.write(t, "\r")
			said += await.Receive(t, at.out, want+" after "+said)
		}
	}
	at.ends(t)
}

type chanWriter chan string

func (c chanWriter) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// forwardInside talks HTTP to the pod, over connections that net/http opens and ends.
func forwardInside(t *testing.T, e *app.Engine, k runnerapi.Key) {
	dial := func(port int) (net.Conn, chan error) {
		forward, err := e.PortForward(t.Context(), k, runnerapi.PortForwardOptions{Port: port})
		require.NoError(t, err)
		near, far := tcpPair(t)
		done := make(chan error, 1)
		go func() { done <- forward(t.Context(), far) }()
		return near, done
	}
	for range 3 {
		near, done := dial(8080)
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web/", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		assert.Contains(t, string(body), "hello")
		require.NoError(t, await.Receive(t, done, "the connection's end"))
	}
	near, done := dial(81)
	_, err := io.ReadAll(near)
	require.NoError(t, err)
	known := &runnerapi.Error{}
	require.ErrorAs(t, await.Receive(t, done, "the refusal of a closed port"), &known)
	assert.Contains(t, known.Detail, "81")
}

func tcpPair(t *testing.T) (near *net.TCPConn, far *net.TCPConn) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	dialled, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

func refusalsInside(t *testing.T, e *app.Engine, k runnerapi.Key) {
	known := &runnerapi.Error{}
	for name, c := range map[string]struct {
		key  runnerapi.Key
		opts runnerapi.ExecOptions
		says string
	}{
		"no App":       {key(k.Namespace, "nowhere"), runnerapi.ExecOptions{}, "nowhere"},
		"no pod":       {k, runnerapi.ExecOptions{Pod: "other"}, "no pod other"},
		"no container": {k, runnerapi.ExecOptions{Container: "other"}, `no container "other"`},
		"no namespace": {key("kube-system", "web"), runnerapi.ExecOptions{}, "kube-system"},
	} {
		c.opts.Command = []string{"/hello"}
		_, err := e.Exec(t.Context(), c.key, c.opts)
		require.ErrorAs(t, err, &known, name)
		assert.Contains(t, known.Detail, c.says, name)
	}
	call, err := e.Exec(t.Context(), k, runnerapi.ExecOptions{Command: []string{"/bin/nothing"}})
	require.NoError(t, err)
	_, err = call(t.Context(), runnerapi.ExecStreams{Stdout: io.Discard, Stderr: io.Discard})
	require.ErrorAs(t, err, &known)
	assert.Contains(t, known.Detail, "/bin/nothing")
}
