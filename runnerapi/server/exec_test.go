package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// nothingIsLeft waits until no command and no connection is in progress in the agent.
func nothingIsLeft(t *testing.T, agent *runnertest.Agent) {
	t.Helper()
	await.Until(t, "nothing is in progress inside", func() bool { return agent.Backend.Inside() == 0 })
}

// running is a command that has begun. The channel gets the error with which it ends.
func running(ctx context.Context, t *testing.T, agent *runnertest.Agent, s runnerapi.ExecStreams, command ...string) <-chan error {
	t.Helper()
	c, done := agent.Client(), make(chan error, 1)
	go func() {
		_, err := c.Apps().Exec(ctx, web, runnerapi.ExecOptions{Command: command}, s)
		done <- err
	}()
	await.Until(t, "the command runs", func() bool { return agent.Backend.Inside() == 1 })
	return done
}

func TestExec_ReturnsExitCode(t *testing.T) {
	_, c := withApp(t)
	for _, code := range []string{"0", "3", "137"} {
		var out, errs bytes.Buffer
		got, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"exit", code}}, runnerapi.ExecStreams{Stdout: &out, Stderr: &errs})
		require.NoError(t, err)
		assert.Equal(t, []string{code, "out", "err"}, []string{strconv.Itoa(got), out.String(), errs.String()})
	}
}

// Sends more than all buffers hold, of every value, both ways.
func TestExec_CarriesAllBytes(t *testing.T) {
	_, c := withApp(t)
	const size = 8 << 20
	sent, got := sha256.New(), sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	_, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"cat"}, Stdin: true}, runnerapi.ExecStreams{Stdin: in, Stdout: got})
	require.NoError(t, err)
	assert.Equal(t, sent.Sum(nil), got.Sum(nil))
}

func TestExec_Terminal(t *testing.T) {
	_, c := withApp(t)
	sizes := make(chan runnerapi.TerminalSize)
	go func() {
		sizes <- runnerapi.TerminalSize{Width: 80, Height: 24}
	}()
	out := &answers{want: map[string]func(){
		"80x24\r\n": func() { go func() { sizes <- runnerapi.TerminalSize{Width: 1, Height: 2} }() },
	}}
	code, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"size"}, TTY: true}, runnerapi.ExecStreams{Stdout: out, Resize: sizes})
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "80x24\r\n1x2\r\n", out.String())
}

// answers does something when it was written what it waits for.
type answers struct {
	bytes.Buffer
	want map[string]func()
}

func (a *answers) Write(p []byte) (int, error) {
	n, err := a.Buffer.Write(p)
	if f := a.want[a.String()]; f != nil {
		f()
	}
	return n, err
}

// The caller leaves, and then the agent stops.
func TestExec_EndsWithCaller(t *testing.T) {
	agent, _ := withApp(t)
	for _, command := range []string{"flood", "hang"} {
		ctx, cancel := context.WithCancel(ctxFor(t))
		done := running(ctx, t, agent, runnerapi.ExecStreams{Stdout: io.Discard}, command)
		cancel()
		require.ErrorIs(t, await.Receive(t, done, "the end of the command"), context.Canceled)
		nothingIsLeft(t, agent)
	}
	done := running(ctxFor(t), t, agent, runnerapi.ExecStreams{}, "hang")
	agent.Stop()
	known := problemOf(t, await.Receive(t, done, "the end of the command"))
	assert.Contains(t, known.Detail, "shutting down")
	assert.Zero(t, agent.Backend.Inside(), "what was hijacked is joined")
}

// endless is input that never ends and is never enough.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Refusals are problems, and nothing is run.
func TestExec_RefusesInvalidRequest(t *testing.T) {
	agent, c := withApp(t)
	for name, call := range map[string]func() error{
		"not_found": func() error {
			_, err := c.Apps().Exec(ctxFor(t), runnerapi.Key{Namespace: web.Namespace, Name: "nowhere"}, runnerapi.ExecOptions{Command: []string{"cat"}}, runnerapi.ExecStreams{})
			return err
		},
		"invalid_request": func() error {
			_, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{}, runnerapi.ExecStreams{})
			return err
		},
		"invalid": func() error {
			_, err := c.Apps().PortForward(ctxFor(t), web, runnerapi.PortForwardOptions{Port: 70_000})
			return err
		},
	} {
		known := problemOf(t, call())
		assert.NotEmpty(t, known.Fix, name)
		assert.NotEmpty(t, known.RequestID, name)
	}
	_, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"panic"}}, runnerapi.ExecStreams{})
	require.Error(t, err)
	nothingIsLeft(t, agent)

	r := newRaw(t, agent)
	resp, body := r.do(http.MethodGet, appPath+"/exec?command=cat", "")
	assert.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
	assert.Contains(t, string(body), "WebSocket")
}

func TestExec_VerifiesAgent(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.ClientWith(func(c *client.Config) { c.AgentID = "other" })
	_, err := c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"cat"}}, runnerapi.ExecStreams{})
	assert.Equal(t, client.CodeUntrusted, codeOf(t, err))
}

func TestPortForward_CarriesAllBytes(t *testing.T) {
	agent, c := withApp(t)
	conn, err := c.Apps().PortForward(ctxFor(t), web, runnerapi.PortForwardOptions{Port: 7})
	require.NoError(t, err)
	const size = 8 << 20
	sent, got := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(conn, sent), io.LimitReader(rand.NewChaCha8([32]byte{2}), size))
		wrote <- errors.Join(err, conn.CloseWrite())
	}()
	n, err := io.Copy(got, conn)
	require.NoError(t, err)
	require.NoError(t, await.Receive(t, wrote, "the end of the writing"))
	assert.EqualValues(t, size, n)
	assert.Equal(t, sent.Sum(nil), got.Sum(nil))
	require.NoError(t, conn.Close())
	nothingIsLeft(t, agent)

	conn, err = c.Apps().PortForward(ctxFor(t), web, runnerapi.PortForwardOptions{Port: 81})
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	known := problemOf(t, err)
	assert.Contains(t, known.Detail, "port 81")
	require.NoError(t, conn.Close())
}

// The connection does not hold up other calls, and ends with the agent.
func TestPortForward_UnreadConnection(t *testing.T) {
	agent, c := withApp(t)
	conn, err := c.Apps().PortForward(ctxFor(t), web, runnerapi.PortForwardOptions{Port: 9})
	require.NoError(t, err)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, endless{})
		wrote <- err
	}()
	_, err = c.Apps().Get(ctxFor(t), web)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Error(t, await.Receive(t, wrote, "the end of the writing"))
	agent.Stop()
	assert.Zero(t, agent.Backend.Inside())
}

func TestExec_EndsWithPolicy(t *testing.T) {
	p := newAsked(func(runnerapi.Intent) error { return nil })
	agent, log := watched(t, p)
	c := agent.Client()
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	log.take(t, 1)
	done := running(ctxFor(t), t, agent, runnerapi.ExecStreams{}, "hang", "secret")
	p.become(refuseAll)
	assert.Equal(t, runnerapi.CodePolicyDenied, codeOf(t, await.Receive(t, done, "the end of the command")))
	record := log.take(t, 1)[0]
	assert.Equal(t, "exec-app", record.Command)
	assert.Contains(t, string(record.Arguments), `"hang"`)
	assert.NotContains(t, string(record.Arguments), "secret")
}
