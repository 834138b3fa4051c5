package controlplane

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// operator makes an operator with a role and returns its credentials.
func (p *plane) operator(name, role string) operators.Credentials {
	p.t.Helper()
	c, err := p.admin.Operators.Create(p.t.Context(), operators.OperatorOptions{Name: name, Role: role, TTL: time.Hour, Replace: true})
	require.NoError(p.t, err)
	return c
}

// as returns the client of an operator.
func (p *plane) as(c operators.Credentials) *operatorapi.Client {
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
	c, err := operators.LoadCredentials(file)
	require.NoError(p.t, err)
	return p.as(c)
}

// records returns what is in the operators' audit log, once it has a number of records.
func (p *plane) records(n int) []operatorapi.OperatorRecord {
	p.t.Helper()
	admin := p.first()
	var list operatorapi.OperatorAudit
	await.Until(p.t, fmt.Sprintf("%d records in the operators' audit log", n), func() bool {
		var err error
		list, err = operatorapi.GetOperatorAudit.Do(p.t.Context(), admin, operatorapi.OperatorAuditInput{After: -1, Limit: 1000})
		require.NoError(p.t, err)
		return len(list.Items) >= n
	})
	report, err := operatorapi.VerifyOperatorAudit.Do(p.t.Context(), admin, operatorapi.VerifyAuditInput{Seq: list.Head.Seq, Hash: list.Head.Hash})
	require.NoError(p.t, err)
	assert.Empty(p.t, report.Problems)
	return list.Items
}

func requireCode(t *testing.T, err error, code problem.Code) {
	t.Helper()
	var e *problem.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, code, e.Code, e.Error())
	assert.NotEmpty(t, e.RequestID)
}

func TestOperatorAPI_ChangesAudited(t *testing.T) {
	p := start(t)
	ctx, admin := t.Context(), p.first()
	token, err := operatorapi.CreateToken.Do(ctx, admin, operatorapi.CreateTokenInput{
		Body: operatorapi.CreateTokenBody{Name: "fleet", Uses: 1, TTL: operatorapi.Duration(time.Hour), Labels: map[string]string{"env": "prod"}},
	})
	require.NoError(t, err)
	assert.NotEmpty(t, token.Text)
	tokens, err := operatorapi.ListTokens.Do(ctx, admin, struct{}{})
	require.NoError(t, err)
	require.Len(t, tokens.Items, 1)
	assert.Equal(t, "fleet", tokens.Items[0].Name)
	assert.Equal(t, "live", tokens.Items[0].State)

	p.registered("shop")
	agent, err := operatorapi.LabelAgent.Do(ctx, admin, operatorapi.LabelAgentInput{
		Agent: "shop", Body: operatorapi.LabelAgentBody{Set: map[string]string{"region": "eu"}},
	})
	require.NoError(t, err)
	assert.Equal(t, "eu", agent.Labels["region"])
	detail, err := operatorapi.GetAgent.Do(ctx, admin, operatorapi.GetAgentInput{Agent: "shop", Events: 5})
	require.NoError(t, err)
	assert.Equal(t, agent.ID, detail.Agent.ID)
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Agent: "nobody"})
	requireCode(t, err, problem.NotFound)

	records := p.records(6)
	require.Len(t, records, 6)
	for i, want := range []struct {
		command, name string
		outcome       runnerapi.AuditOutcome
	}{
		{"create-token", "fleet", runnerapi.AuditBegun}, {"create-token", "fleet", runnerapi.AuditDone},
		{"label-agent", "shop", runnerapi.AuditBegun}, {"label-agent", "shop", runnerapi.AuditDone},
		{"revoke-agent", "nobody", runnerapi.AuditBegun}, {"revoke-agent", "nobody", runnerapi.AuditRefused},
	} {
		r := records[i]
		assert.Equal(t, want.command, r.Command)
		assert.Equal(t, want.name, r.Name)
		assert.Equal(t, want.outcome, r.Outcome)
		assert.Equal(t, operators.FirstOperator, r.Operator)
		assert.NotContains(t, string(r.Arguments), token.Text)
	}
	assert.JSONEq(t, `{"agent":"shop","set":{"region":"eu"}}`, string(records[3].Arguments))
}

func TestOperatorAPI_Roles(t *testing.T) {
	p := start(t)
	for _, role := range operators.Roles {
		c := p.operator(role, role)
		client := p.raw(c)
		for _, call := range operatorapi.Calls() {
			path := strings.NewReplacer("{id}", "none", "{agent}", "none", "{runner}", "none", "{webhook}", "none", "{release}", "none",
				"{host}", "none", "{step}", "none", "{operator}", "none").Replace(call.Path)
			status := p.send(client, call.Method, path, "not JSON")
			if operators.Includes(role, call.Role) {
				assert.NotEqual(t, http.StatusForbidden, status, "%s: %s", role, call.ID)
				continue
			}
			assert.Equal(t, http.StatusForbidden, status, "%s: %s", role, call.ID)
			assert.False(t, role == operators.RoleAdmin, "an admin may do everything")
		}
	}
}

// raw returns an HTTP client with an operator's certificate.
func (p *plane) raw(c operators.Credentials) *http.Client {
	p.t.Helper()
	config, err := c.TLSConfig()
	require.NoError(p.t, err)
	return p.withTLS(config)
}

// send sends a body and returns the status of the answer.
func (p *plane) send(client *http.Client, method, path, body string, change ...func(*http.Request)) int {
	p.t.Helper()
	var sent io.Reader
	if method != http.MethodGet {
		sent = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.Advertised().API+path, sent)
	require.NoError(p.t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	resp, err := client.Do(r)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(p.t, err)
	if resp.StatusCode >= http.StatusBadRequest {
		assert.Equal(p.t, problem.ContentType, resp.Header.Get("Content-Type"), "%s %s", method, path)
	}
	return resp.StatusCode
}

// TestOperatorAPI_RefusesOthers calls with the certificate of an agent or a Runner, with none, or
// as an operator who was revoked or has other credentials.
func TestOperatorAPI_RefusesOthers(t *testing.T) {
	p := start(t)
	revoked, replaced := p.raw(p.operator("gone", operators.RoleAdmin)), p.raw(p.operator("again", operators.RoleAdmin))
	require.NoError(t, p.admin.Operators.Revoke(t.Context(), "gone"))
	p.operator("again", operators.RoleAdmin)
	for name, client := range map[string]*http.Client{
		"nobody":   p.client(),
		"agent":    p.withTLS(p.registered("shop").tlsConfig()),
		"runner":   p.client(p.certificate(p.issue("builder", ""))),
		"revoked":  revoked,
		"replaced": replaced,
	} {
		assert.Equal(t, http.StatusUnauthorized, p.send(client, "GET", operatorapi.Prefix+"tokens", ""), name)
		assert.Equal(t, http.StatusUnauthorized, p.send(client, "POST", operatorapi.Prefix+"tokens", "{}"), name)
	}
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, tokens, 1, "the agent's own")
	seen := map[string]int{}
	for _, r := range p.records(8) {
		assert.Equal(t, runnerapi.AuditRefused, r.Outcome)
		seen[strings.Split(r.Operator, "/")[0]]++
	}
	assert.Equal(t, map[string]int{"agent": 2, "runner": 2, "gone": 2, "again": 2}, seen, "strangers are not in the audit log")
}

// TestOperatorAPI_OperatorIsNoRunner: an operator is not an agent either.
func TestOperatorAPI_OperatorIsNoRunner(t *testing.T) {
	p := start(t)
	client := p.raw(p.operator("alice", operators.RoleAdmin))
	assert.Equal(t, http.StatusUnauthorized, p.send(client, "GET", announce.SnapshotPath, ""))
	assert.Equal(t, http.StatusUnauthorized, p.send(client, "POST", "/v1/agent/check", ""))
}

func TestOperatorAPI_InvalidInput(t *testing.T) {
	p := start(t)
	client := p.raw(p.operator("alice", operators.RoleAdmin))
	tokens := operatorapi.Prefix + "tokens"
	for name, c := range map[string]struct {
		method, path, body string
		status             int
	}{
		"an unknown field":             {"POST", tokens, `{"title":"a"}`, http.StatusUnprocessableEntity},
		"a field in the wrong case":    {"POST", tokens, `{"Name":"a"}`, http.StatusUnprocessableEntity},
		"a field twice":                {"POST", tokens, `{"name":"a","name":"b"}`, http.StatusBadRequest},
		"a wrong type":                 {"POST", tokens, `{"uses":"many"}`, http.StatusUnprocessableEntity},
		"no length of time":            {"POST", tokens, `{"ttl":"soon"}`, http.StatusUnprocessableEntity},
		"no JSON":                      {"POST", tokens, `{`, http.StatusBadRequest},
		"a body that is too large":     {"POST", tokens, `{"name":"` + strings.Repeat("a", 1<<20) + `"}`, http.StatusRequestEntityTooLarge},
		"a body where none is taken":   {"POST", tokens + "/x/revoke", `{}`, http.StatusBadRequest},
		"an unknown parameter":         {"POST", tokens + "?dryrun=true", `{}`, http.StatusUnprocessableEntity},
		"a parameter twice":            {"POST", tokens + "?dryRun=true&dryRun=false", `{}`, http.StatusUnprocessableEntity},
		"a parameter that is no value": {"POST", tokens + "?dryRun=1", `{}`, http.StatusUnprocessableEntity},
		"a role that is none":          {"POST", operatorapi.Prefix + "operators", `{"name":"bob","role":"root"}`, http.StatusUnprocessableEntity},
		"no such call":                 {"GET", operatorapi.Prefix + "nothing", "", http.StatusNotFound},
		"no such method":               {"PATCH", tokens, `{}`, http.StatusMethodNotAllowed},
	} {
		assert.Equal(t, c.status, p.send(client, c.method, c.path, c.body), name)
	}
	list, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list, "nothing was made")
	p.records(12) // of all but those that are no calls
}

func TestOperatorAPI_DryRun(t *testing.T) {
	p := start(t)
	ctx, admin := t.Context(), p.first()
	p.registered("shop")
	before, issued := p.snapshot(), len(p.issued(operators.IssuedOptions{}))
	dry := operatorapi.Write{DryRun: true}
	token, err := operatorapi.CreateToken.Do(ctx, admin, operatorapi.CreateTokenInput{Write: dry})
	require.NoError(t, err)
	assert.Empty(t, token.Text)
	_, err = operatorapi.LabelAgent.Do(ctx, admin, operatorapi.LabelAgentInput{Write: dry, Agent: "shop", Body: operatorapi.LabelAgentBody{Set: map[string]string{"a": "b"}}})
	require.NoError(t, err)
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Write: dry, Agent: "shop"})
	require.NoError(t, err)
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Write: dry, Agent: "nobody"})
	requireCode(t, err, problem.NotFound)
	runner, err := operatorapi.CreateRunner.Do(ctx, admin, operatorapi.CreateRunnerInput{Write: dry, Body: operatorapi.CreateRunnerBody{Name: "ci"}})
	require.NoError(t, err)
	assert.Empty(t, runner.Key)
	made, err := operatorapi.CreateOperator.Do(ctx, admin, operatorapi.CreateOperatorInput{Write: dry, Body: operatorapi.CreateOperatorBody{Name: "bob", Role: "viewer"}})
	require.NoError(t, err)
	assert.Empty(t, made.Key)
	hook, err := operatorapi.CreateWebhook.Do(ctx, admin, operatorapi.CreateWebhookInput{Write: dry, Body: operatorapi.CreateWebhookBody{Name: "pager", URL: "https://pager.example.com/"}})
	require.NoError(t, err)
	assert.Empty(t, hook.Secret)
	_, err = operatorapi.CreateHostGrant.Do(ctx, admin, operatorapi.CreateHostGrantInput{Write: dry, Host: "www.example.com", Body: operatorapi.CreateHostGrantBody{Agent: "shop"}})
	require.NoError(t, err)
	rotation, err := operatorapi.RotateCA.Do(ctx, admin, operatorapi.RotateCAInput{Write: dry, Step: ca.Start})
	require.NoError(t, err)
	assert.False(t, rotation.Changed)
	assert.Equal(t, before, p.snapshot())
	assert.Len(t, p.issued(operators.IssuedOptions{}), issued)
}

// snapshot is what dry runs could change.
func (p *plane) snapshot() (all []any) {
	p.t.Helper()
	ctx := p.t.Context()
	add := func(v any, err error) {
		require.NoError(p.t, err)
		all = append(all, v)
	}
	add(p.admin.Tokens.List(ctx))
	add(p.admin.Agents.List(ctx))
	add(p.admin.Runners.List(ctx))
	add(p.admin.Operators.List(ctx))
	add(p.admin.Webhooks.List(ctx))
	add(p.admin.Gateway.Grants(ctx))
	add(p.admin.CA.Status(ctx))
	return all
}

func TestOperatorAPI_IdempotencyKey(t *testing.T) {
	p := start(t)
	ctx, admin := t.Context(), p.first()
	p.registered("shop")
	grant := operatorapi.CreateHostGrantInput{
		Write: operatorapi.Write{IdempotencyKey: "k1"}, Host: "www.example.com", Body: operatorapi.CreateHostGrantBody{Agent: "shop"},
	}
	first, err := operatorapi.CreateHostGrant.Do(ctx, admin, grant)
	require.NoError(t, err)
	p.clock.forward(time.Minute)
	again, err := operatorapi.CreateHostGrant.Do(ctx, admin, grant)
	require.NoError(t, err)
	assert.Equal(t, first, again, "with the time of the first")
	grant.Host = "other.example.com"
	_, err = operatorapi.CreateHostGrant.Do(ctx, admin, grant)
	requireCode(t, err, problem.Conflict)

	create := operatorapi.CreateTokenInput{Write: operatorapi.Write{IdempotencyKey: "k2"}, Body: operatorapi.CreateTokenBody{Name: "a"}}
	token, err := operatorapi.CreateToken.Do(ctx, admin, create)
	require.NoError(t, err)
	_, err = operatorapi.CreateToken.Do(ctx, admin, create)
	requireCode(t, err, problem.Conflict)
	require.ErrorContains(t, err, "is not kept")
	tokens, err := operatorapi.ListTokens.Do(ctx, admin, struct{}{})
	require.NoError(t, err)
	assert.Len(t, tokens.Items, 2, "the agent's, and one")
	kept, err := p.store.OperatorChange(ctx, operators.FirstOperator, "k2")
	require.NoError(t, err)
	assert.NotContains(t, kept.Answer, token.Text, "the secret is kept nowhere")

	missing := operatorapi.AgentInput{Write: operatorapi.Write{IdempotencyKey: "k3"}, Agent: "later"}
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, missing)
	requireCode(t, err, problem.NotFound)
	p.registered("later")
	_, err = operatorapi.RevokeAgent.Do(ctx, admin, missing)
	require.NoError(t, err, "a refusal does not use the key up")
}

// TestOperatorAPI_LimitsRefusals: too many refusals would push older records out of the audit log.
func TestOperatorAPI_LimitsRefusals(t *testing.T) {
	p := start(t)
	viewer, other := p.raw(p.operator("eve", operators.RoleViewer)), p.raw(p.operator("bob", operators.RoleViewer))
	statuses := map[int]int{}
	for range 80 {
		statuses[p.send(viewer, "POST", operatorapi.Prefix+"tokens", "{}")]++
	}
	assert.Positive(t, statuses[http.StatusTooManyRequests], "%v", statuses)
	assert.Equal(t, http.StatusOK, p.send(other, "GET", operatorapi.Prefix+"tokens", ""), "it is that operator's alone")
}

// TestCARotate_ByOperatorAPI: the operator's credentials have only the old CA.
func TestCARotate_ByOperatorAPI(t *testing.T) {
	p := start(t)
	ctx, admin := t.Context(), p.first()
	agent := p.registered("shop")
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		in := operatorapi.RotateCAInput{Step: step}
		if step != ca.Start {
			_, err := operatorapi.RotateCA.Do(ctx, admin, in)
			requireCode(t, err, operatorapi.CodeNotReady)
			require.ErrorContains(t, err, "agent "+agent.name)
			in.Body.Force = true
		}
		after, err := operatorapi.RotateCA.Do(ctx, admin, in)
		require.NoError(t, err)
		assert.True(t, after.Changed)
	}
	await.Until(t, "the new CA in the control plane that serves", func() bool { return p.ca.Stage() == ca.Settled && len(p.ca.FormerCAs()) > 0 })
	status, err := operatorapi.GetCA.Do(ctx, p.first(), struct{}{})
	require.NoError(t, err)
	assert.Equal(t, ca.Settled, status.Stage)
}

// TestOperatorAPI_RefusesOtherSites: the browser has an operator's certificate.
func TestOperatorAPI_RefusesOtherSites(t *testing.T) {
	p := start(t)
	p.registered("shop")
	client := p.raw(p.operator("alice", operators.RoleAdmin))
	path := operatorapi.Prefix + "agents/shop/revoke"
	for name, change := range map[string]func(*http.Request){
		"a modern browser": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"an old browser":   func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.com") },
	} {
		assert.Equal(t, http.StatusForbidden, p.send(client, "POST", path, "", change), name)
	}
	assert.Equal(t, http.StatusOK, p.send(client, "POST", path, ""))
}
