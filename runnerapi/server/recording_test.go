package server_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const recordingRules = "rules:\n- name: watched\n  commands: [exec-app]\n  record: true\n- name: rest\n"

// recorded is a fake agent with the App web whose policy has sessions recorded.
func recorded(t *testing.T, store recording.Store) (*runnertest.Agent, *policy.Policy, *auditor) {
	t.Helper()
	p := policyOf(t, recordingRules)
	agent, log := watched(t, p)
	agent.Stop()
	agent.Recorder = recording.New(store)
	agent.Start()
	_, err := agent.Client().Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	log.take(t, 1)
	return agent, p, log
}

func cast(t *testing.T, store recording.Store, id string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, recording.Write(t.Context(), store, id, &b))
	return b.String()
}

// Standard output and error are recorded, and the terminal's size. Input is not. The caller learns
// the ID.
func TestRecording_KeepsOutput(t *testing.T) {
	store := recording.Files{Dir: t.TempDir()}
	agent, _, log := recorded(t, store)
	said := ""
	var out, errs bytes.Buffer
	s := runnerapi.ExecStreams{Stdout: &out, Stderr: &errs, Recorded: func(id string) { said = id }}
	code, err := agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"exit", "3"}}, s)
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	assert.Equal(t, []string{"out", "err"}, []string{out.String(), errs.String()})
	require.NotEmpty(t, said)
	text := cast(t, store, said)
	assert.Contains(t, text, `"o", "out"]`)
	assert.Contains(t, text, `"o", "err"]`)
	assert.Contains(t, text, `"m", "ended"]`)
	assert.Contains(t, text, `"title":"tester: exec `+web.String()+`"`)

	records := log.take(t, 2)
	for i, outcome := range []runnerapi.AuditOutcome{runnerapi.AuditBegun, runnerapi.AuditDone} {
		r := records[i]
		assert.Equal(t, outcome, r.Outcome)
		assert.Equal(t, said, r.Recording, "the record names the recording")
		assert.Contains(t, text, r.RequestID, "and the recording the record")
	}

	in := bytes.NewBufferString("typed unseen")
	_, err = agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"hush"}, Stdin: true}, runnerapi.ExecStreams{Stdin: in, Stdout: &out, Recorded: s.Recorded})
	require.NoError(t, err)
	assert.NotContains(t, cast(t, store, said), "typed unseen")

	sizes := make(chan runnerapi.TerminalSize, 1)
	sizes <- runnerapi.TerminalSize{Width: 1, Height: 7}
	_, err = agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"size"}, TTY: true},
		runnerapi.ExecStreams{Stdout: io.Discard, Resize: sizes, Recorded: s.Recorded})
	require.NoError(t, err)
	assert.Contains(t, cast(t, store, said), `"r", "1x7"]`)
}

// closing is a store that takes only so many parts.
type closing struct {
	recording.Files
	room chan struct{}
}

func (c closing) Put(ctx context.Context, id string, part int, text []byte) error {
	select {
	case <-c.room:
		return c.Files.Put(ctx, id, part, text)
	default:
		return io.ErrShortWrite
	}
}

// A session needs a recording at its beginning, and ends when recording fails.
func TestRecording_RequiredForExec(t *testing.T) {
	store := closing{recording.Files{Dir: t.TempDir()}, make(chan struct{}, 1)}
	agent, _, log := recorded(t, store)
	exec := func() error {
		_, err := agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"flood"}}, runnerapi.ExecStreams{Stdout: io.Discard})
		return err
	}
	e := problemOf(t, exec())
	assert.Equal(t, runnerapi.CodeRecordingUnavailable, e.Code)
	assert.NotEmpty(t, e.Fix)
	assert.Equal(t, runnerapi.CodeRecordingUnavailable, log.take(t, 1)[0].Code)
	assert.Zero(t, agent.Backend.Inside())

	store.room <- struct{}{} // for the beginning
	assert.Equal(t, runnerapi.CodeRecordingUnavailable, problemOf(t, exec()).Code)
	nothingIsLeft(t, agent)
}

func TestRecording_FullEndsExec(t *testing.T) {
	agent, _, _ := recorded(t, recording.Files{Dir: t.TempDir()})
	_, err := agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"flood"}}, runnerapi.ExecStreams{Stdout: io.Discard})
	assert.Equal(t, runnerapi.CodeRecordingFull, problemOf(t, err).Code)
	nothingIsLeft(t, agent)
}

// The session began without a recording.
func TestRecording_NewRuleEndsExec(t *testing.T) {
	agent, p, _ := recorded(t, recording.Files{Dir: t.TempDir()})
	setRules(t, p, "rules: [{name: free, commands: [exec-app]}]")
	done := running(ctxFor(t), t, agent, runnerapi.ExecStreams{Recorded: func(string) { t.Error("it is not recorded") }}, "hang")
	setRules(t, p, recordingRules)
	e := problemOf(t, await.Receive(t, done, "the end of the session"))
	assert.Equal(t, runnerapi.CodePolicyDenied, e.Code)
	assert.Contains(t, e.Detail, "record")
}

// A panic of the backend ends it too.
func TestRecording_EndsWithCaller(t *testing.T) {
	store := recording.Files{Dir: t.TempDir()}
	agent, _, _ := recorded(t, store)
	ctx, cancel := context.WithCancel(ctxFor(t))
	said := make(chan string, 1)
	done := running(ctx, t, agent, runnerapi.ExecStreams{Recorded: func(id string) { said <- id }}, "hang")
	id := await.Receive(t, said, "the ID of the recording")
	cancel()
	require.Error(t, await.Receive(t, done, "the end of the command"))
	await.Until(t, "the recording has ended", func() bool { return bytes.Contains([]byte(cast(t, store, id)), []byte(`"ended"`)) })
	for range 20 { // each gives its place back
		_, err := agent.Client().Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"panic"}}, runnerapi.ExecStreams{})
		require.Error(t, err)
		assert.NotEqual(t, runnerapi.CodeRecordingUnavailable, codeOf(t, err))
	}
}
