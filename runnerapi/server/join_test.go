package server_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// A Runner that may only read does not get the token. No log has it.
func TestJoinToken_NeedsNamedRule(t *testing.T) {
	p := newAsked(func(i runnerapi.Intent) error {
		if i.Access == runnerapi.Reads {
			return nil
		}
		return refuseAll(i)
	})
	said, log := &bytes.Buffer{}, &heard{}
	agent := runnertest.New(t, runnertest.NewBackend())
	agent.Policy, agent.Audit, agent.Log = p, log, zerolog.New(zerolog.SyncWriter(said))
	agent.Start()
	c := agent.Client()
	command, err := c.Nodes().JoinCommand(ctxFor(t))
	require.NoError(t, err)
	assert.Equal(t, `bash join-worker.sh https://192.0.2.10:6443 - <<<"$K3S_TOKEN"`, command.Command)
	_, err = c.Nodes().JoinToken(ctxFor(t))
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)

	p.become(func(runnerapi.Intent) error { return nil })
	token, err := c.Nodes().JoinToken(ctxFor(t))
	require.NoError(t, err)
	assert.Equal(t, runnertest.JoinToken, token.Token)
	assert.NotContains(t, token.String(), token.Token)
	await.Until(t, "the refusal is recorded, and that the token was given", func() bool { return len(log.all()) == 2 })
	assert.Equal(t, "get-join-token", log.all()[1].Command)
	assert.Empty(t, log.all()[1].Arguments)
	resp, _ := newRaw(t, agent).do(http.MethodGet, "/v1/cluster/join/token", "")
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	agent.Stop()
	assert.Contains(t, said.String(), "/v1/cluster/join/token")
	assert.NotContains(t, said.String(), runnertest.JoinToken)
}
