package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// operator makes an operator with a role and returns its credentials.
func (p *plane) operator(name, role string) administration.Credentials {
	p.t.Helper()
	c, err := p.admin.Operators.Create(p.t.Context(), administration.OperatorOptions{Name: name, Role: role, TTL: time.Hour, Replace: true})
	require.NoError(p.t, err)
	return c
}

// as returns the client of an operator.
func (p *plane) as(c administration.Credentials) *operatorapi.Client {
	p.t.Helper()
	client, err := operatorapi.NewClient(c, "test")
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, client.Close()) })
	return client
}

// first returns the client of the admin that the first start has made.
func (p *plane) first() *operatorapi.Client {
	p.t.Helper()
	file := filepath.Join(p.cfg.DataDir, FileFirstOperator)
	info, err := os.Stat(file)
	require.NoError(p.t, err)
	assert.Equal(p.t, os.FileMode(0o600), info.Mode().Perm())
	c, err := administration.LoadCredentials(file)
	require.NoError(p.t, err)
	return p.as(c)
}

// records returns the calls in the operators' audit log, once it has a number of records.
func (p *plane) records(n int) []operatorapi.OperatorRecord {
	p.t.Helper()
	admin := p.first()
	var list operatorapi.OperatorAudit
	await.Until(p.t, fmt.Sprintf("%d records in the operators' audit log", n), func() bool {
		var err error
		list, err = operatorapi.GetOperatorAudit.Do(p.t.Context(), admin, operatorapi.OperatorAuditInput{AuditFilter: runnerapi.AuditFilter{Limit: 1000}})
		require.NoError(p.t, err)
		return list.Head.Seq >= int64(n)
	})
	report, err := operatorapi.VerifyOperatorAudit.Do(p.t.Context(), admin, operatorapi.VerifyAuditInput{Seq: list.Head.Seq, Hash: list.Head.Hash})
	require.NoError(p.t, err)
	assert.Empty(p.t, report.Problems)
	return list.Items
}

// TestOperatorAPI_RefusesOthers calls with the certificate of an agent or a Runner, with none, or
// as an operator who was revoked or has other credentials. An operator is none of the others.
func TestOperatorAPI_RefusesOthers(t *testing.T) {
	p := start(t)
	client := func(name string) *http.Client {
		c := p.operator(name, administration.RoleAdmin)
		config, err := c.TLSConfig()
		require.NoError(t, err)
		return p.withTLS(config)
	}
	status := func(client *http.Client, method, path string) int {
		return p.call(client, method, path, "{}").StatusCode
	}
	revoked, replaced := client("gone"), client("again")
	require.NoError(t, p.admin.Operators.Revoke(t.Context(), "gone"))
	current := client("again")
	for name, client := range map[string]*http.Client{
		"nobody": p.client(), "agent": p.withTLS(p.registered("shop").tlsConfig()), "runner": p.client(p.certificate(p.issue("builder", ""))),
		"revoked": revoked, "replaced": replaced,
	} {
		assert.Equal(t, http.StatusUnauthorized, status(client, http.MethodPost, operatorapi.Prefix+"tokens"), name)
	}
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, tokens, 1, "the agent's own")
	seen := map[string]int{}
	for _, r := range p.records(4) {
		assert.Equal(t, runnerapi.AuditRefused, r.Outcome)
		seen[strings.Split(r.Operator, "/")[0]]++
	}
	assert.Equal(t, map[string]int{"agent": 1, "runner": 1, "gone": 1, "again": 1}, seen, "strangers are not in the audit log")
	assert.Equal(t, http.StatusUnauthorized, status(current, http.MethodGet, announce.SnapshotPath))
	assert.Equal(t, http.StatusUnauthorized, status(current, http.MethodPost, "/v1/agent/check"))
}

// TestOperatorAPI_DryRun makes each kind of change, and compares what they could have changed.
func TestOperatorAPI_DryRun(t *testing.T) {
	p := start(t)
	ctx, admin := t.Context(), p.first()
	p.registered("shop")
	state := func() (all []any) {
		t.Helper()
		add := func(v any, err error) {
			require.NoError(t, err)
			all = append(all, v)
		}
		add(p.admin.Tokens.List(ctx))
		add(p.admin.Agents.List(ctx))
		add(p.admin.Runners.List(ctx))
		add(p.admin.Operators.List(ctx))
		add(p.admin.Webhooks.List(ctx))
		add(p.admin.Gateway.Grants(ctx))
		add(p.admin.CA.Status(ctx))
		add(p.admin.CA.Issued(ctx, administration.IssuedOptions{Limit: 100}))
		return all
	}
	before, dry := state(), operatorapi.Write{DryRun: true}
	token, err := operatorapi.CreateToken.Do(ctx, admin, operatorapi.CreateTokenInput{Write: dry})
	require.NoError(t, err)
	_, err = operatorapi.LabelAgent.Do(ctx, admin, operatorapi.LabelAgentInput{Write: dry, Agent: "shop", Body: operatorapi.LabelAgentBody{Set: map[string]string{"a": "b"}}})
	require.NoError(t, err)
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Write: dry, Agent: "shop"})
	require.NoError(t, err)
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Write: dry, Agent: "nobody"})
	requireProblem(t, err, problem.NotFound)
	runner, err := operatorapi.CreateRunner.Do(ctx, admin, operatorapi.CreateRunnerInput{Write: dry, Body: operatorapi.CreateRunnerBody{Name: "ci"}})
	require.NoError(t, err)
	made, err := operatorapi.CreateOperator.Do(ctx, admin, operatorapi.CreateOperatorInput{Write: dry, Body: operatorapi.CreateOperatorBody{Name: "bob", Role: "viewer"}})
	require.NoError(t, err)
	hook, err := operatorapi.CreateWebhook.Do(ctx, admin, operatorapi.CreateWebhookInput{Write: dry, Body: operatorapi.CreateWebhookBody{Name: "pager", WebhookSettings: operatorapi.WebhookSettings{URL: "https://pager.example.com/"}}})
	require.NoError(t, err)
	_, err = operatorapi.CreateHostGrant.Do(ctx, admin, operatorapi.CreateHostGrantInput{Write: dry, Host: "www.example.com", Body: operatorapi.CreateHostGrantBody{Agent: "shop"}})
	require.NoError(t, err)
	rotation, err := operatorapi.RotateCA.Do(ctx, admin, operatorapi.RotateCAInput{Write: dry, Step: ca.Start})
	require.NoError(t, err)
	assert.False(t, rotation.Changed)
	assert.Empty(t, token.Text+runner.Key+made.Key+hook.Secret)
	assert.Equal(t, before, state())
}

// here returns the client of a caller on the control plane's machine.
func here(p *plane) *operatorapi.Client {
	p.t.Helper()
	data := datadir.Data{Dir: p.cfg.DataDir}
	client := operatorapi.NewSocketClient(data.DialSocket, "test")
	p.t.Cleanup(func() { assert.NoError(p.t, client.Close()) })
	return client
}

// TestSocket_AdmitsWithoutCredentials: cmd/controlplane tests what its callers may do.
func TestSocket_AdmitsWithoutCredentials(t *testing.T) {
	p := start(t)
	socket := filepath.Join(p.cfg.DataDir, "operators.sock")
	info, err := os.Stat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())
	_, err = operatorapi.ListOperators.Do(t.Context(), here(p), struct{}{})
	require.NoError(t, err)
	_, err = operatorapi.CreateConsoleCode.Do(t.Context(), here(p), operatorapi.ConsoleCodeInput{})
	requireProblem(t, err, problem.Conflict)
	p.stop()
	assert.NoFileExists(t, socket)
}

// TestSocket_AdmitsTwoUsers: the two are root and the control plane's user.
func TestSocket_AdmitsTwoUsers(t *testing.T) {
	call := func(from any) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, from), http.MethodGet, "/", nil)
		admitLocal(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	own := uint32(os.Geteuid())
	assert.Equal(t, http.StatusNotFound, call(peer{uid: 0}))
	assert.Equal(t, http.StatusNotFound, call(peer{uid: own}))
	assert.Equal(t, http.StatusForbidden, call(peer{uid: own + 1000}))
	assert.Equal(t, http.StatusForbidden, call(peer{uid: own, err: net.ErrClosed}))
	assert.Equal(t, http.StatusForbidden, call(nil))
	one, other := net.Pipe()
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
	require.Error(t, peerOf(one).err)
}

// TestSocket_ReplacesStale: the error says until then that no control plane serves.
func TestSocket_ReplacesStale(t *testing.T) {
	data := datadir.Data{Dir: t.TempDir()}
	_, err := data.DialSocket(t.Context())
	require.ErrorContains(t, err, "is not the data directory of a control plane on this machine")
	left, err := data.ListenSocket(t.Context())
	require.NoError(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, left.Close())
	_, err = data.DialSocket(t.Context())
	require.ErrorContains(t, err, "no control plane serves "+data.Dir)
	p := start(t, func(cfg *Config) { cfg.DataDir = data.Dir })
	_, err = operatorapi.ListTokens.Do(t.Context(), here(p), struct{}{})
	require.NoError(t, err)
}

// TestSocket_PathTooLong: the control plane serves where the kernel accepts no socket.
func TestSocket_PathTooLong(t *testing.T) {
	var log bytes.Buffer
	p := start(t, func(cfg *Config) {
		cfg.DataDir = filepath.Join(t.TempDir(), strings.Repeat("long", 30))
		cfg.Log = zerolog.New(zerolog.SyncWriter(&log))
	})
	_, err := operatorapi.ListTokens.Do(t.Context(), p.first(), struct{}{})
	require.NoError(t, err)
	p.stop()
	assert.Contains(t, log.String(), "commands on this machine need an operator's credentials")
	assert.Contains(t, log.String(), "choose a data directory with a shorter path")
}
