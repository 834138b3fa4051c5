package operatorapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// api serves the operator API. A call's Role header says who calls, and Certificate with which
// certificate. The certificate "replaced" is refused.
type api struct {
	*admintest.Plane
	*operatorapi.Server
	t *testing.T
}

func serve(t *testing.T) api {
	p := admintest.Open(t)
	a := api{p, operatorapi.NewServer(p.Admin, operatorapi.Config{Log: zerolog.Nop(), Identify: func(r *http.Request) (operatorapi.Caller, error) {
		role := r.Header.Get("Role")
		if role == "" {
			return operatorapi.Caller{}, problem.Errorf(problem.Unauthorized, "", "a stranger")
		}
		caller := operatorapi.Caller{Operator: store.Operator{Name: role, Role: role}, Certificate: r.Header.Get("Certificate"), Proven: "operator/" + role}
		if caller.Certificate == "replaced" {
			return caller, problem.Errorf(problem.Unauthorized, "", "the certificate was replaced")
		}
		return caller, nil
	}}), t}
	await.Background(t, "the audit log", a.Run)
	return a
}

// call makes a call. Headers are names and values by turns.
func (a api) call(role, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), method, operatorapi.Prefix+path, strings.NewReader(body))
	r.Header.Set("Role", role)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func TestOperatorAPI_Roles(t *testing.T) {
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	a := serve(t)
	for _, c := range operatorapi.Calls() {
		a.Advance(time.Hour) // so that the limit of refusals is not reached
		path := strings.TrimPrefix(parameter.ReplaceAllString(c.Path, "x"), operatorapi.Prefix)
		assert.Equal(t, http.StatusUnauthorized, a.call("", c.Method, path, "").Code, c.ID)
		for _, role := range administration.Roles {
			status := a.call(role, c.Method, path, "", "Idempotency-Key", "bad key").Code // no change is carried out
			assert.Equal(t, !administration.Includes(role, c.Role), status == http.StatusForbidden, "%s as %s: %d", c.ID, role, status)
		}
	}
}

// TestOperatorAPI_LimitsRefusals: who has a replaced certificate, or an open page, does not lock
// out the operator whose name is in it.
func TestOperatorAPI_LimitsRefusals(t *testing.T) {
	a := serve(t)
	call := func(certificate string) int {
		return a.call("viewer", "POST", "tokens", "{}", "Certificate", certificate).Code
	}
	for _, certificate := range []string{"replaced", ""} {
		refused := 0
		for ; call(certificate) != http.StatusTooManyRequests; refused++ {
			require.Less(t, refused, 100)
		}
		assert.Equal(t, 60, refused, certificate)
	}
	assert.Equal(t, "10", a.call("viewer", "GET", "agents", "").Header().Get("Retry-After"))
	assert.Equal(t, http.StatusForbidden, call("new"))
	assert.Equal(t, http.StatusOK, a.call("viewer", "GET", "agents", "", "Certificate", "new").Code)
	a.Advance(10 * time.Second)
	assert.Equal(t, http.StatusUnauthorized, call("replaced"))
}

func TestOperatorAPI_RefusesRequests(t *testing.T) {
	a := serve(t)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		headers            []string
	}{
		"path":            {"GET", "none", "", 404, nil},
		"method":          {"PUT", "tokens", "", 405, nil},
		"method's case":   {"get", "tokens", "", 405, nil},
		"another site":    {"POST", "tokens", "{}", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		"query":           {"GET", "tokens?x=1", "", 422, nil},
		"body of a GET":   {"GET", "tokens", "{}", 400, nil},
		"field's case":    {"POST", "tokens", `{"Name":"a"}`, 422, nil},
		"field twice":     {"POST", "tokens", `{"name":"a","name":"b"}`, 400, nil},
		"media type":      {"POST", "tokens", `{}`, 415, []string{"Content-Type", "text/plain"}},
		"size":            {"POST", "tokens", `{"name":"` + strings.Repeat("a", 2<<20) + `"}`, 413, nil},
		"value":           {"POST", "tokens", `{"uses":-1}`, 422, nil},
		"selector":        {"GET", "agents?selector=a%3Db%3Dc", "", 422, nil},
		"comparison":      {"GET", "agents?selector=rank%3E1", "", 422, nil},
		"missing agent":   {"GET", "agents/none", "", 404, nil},
		"never presented": {"POST", "certificate", "", 409, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := a.call("admin", c.method, c.path, c.body, c.headers...)
			assert.Equal(t, c.status, w.Code, w.Body)
			assert.Equal(t, problem.ContentType, w.Header().Get("Content-Type"))
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			assert.Equal(t, c.status == 405, w.Header().Get("Allow") == "GET, POST")
		})
	}
}

func TestOperatorAPI_IdempotencyKey(t *testing.T) {
	a := serve(t)
	a.Agent(t, "shop")
	label := func(key, value string) *httptest.ResponseRecorder {
		return a.call("operator", "POST", "agents/shop/labels", `{"set":{"env":"`+value+`"}}`, "Idempotency-Key", key)
	}
	first := label("k1", "prod")
	require.Equal(t, 200, first.Code, first.Body)
	require.Equal(t, 200, label("k2", "dev").Code)
	again := label("k1", "prod")
	assert.Equal(t, first.Body.String(), again.Body.String(), "the answer is repeated")
	list, err := a.Agents.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "dev", list[0].Labels["env"], "and the change is not")
	assert.Equal(t, 409, label("k1", "test").Code, "another change")
	assert.Equal(t, 422, label("k3", "not valid").Code)
	assert.Equal(t, 200, label("k3", "valid").Code, "a refused change uses no key")
	token := func() *httptest.ResponseRecorder {
		return a.call("operator", "POST", "tokens", "{}", "Idempotency-Key", "k4")
	}
	assert.Equal(t, 200, token().Code)
	assert.Contains(t, token().Body.String(), "its secret was returned once")
	a.Advance(25 * time.Hour)
	assert.Equal(t, 200, token().Code, "keys are forgotten after a day")
}

func TestClient_CallsServer(t *testing.T) {
	a := serve(t)
	agent := a.Agent(t, "shop")
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Role", "admin")
		assert.Equal(t, "pipeops-controlplane/1.2.3", r.UserAgent())
		a.ServeHTTP(w, r)
	}))
	t.Cleanup(listening.Close)
	socket := operatorapi.NewSocketClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listening.Listener.Addr().String())
	}, "1.2.3")
	admin := func(context.Context) (operatorapi.Caller, error) {
		return operatorapi.Caller{Operator: store.Operator{Name: "console", Role: administration.RoleAdmin}, Proven: "operator/console"}, nil
	}
	for name, c := range map[string]*operatorapi.Client{"socket": socket, "within": a.Within()} {
		t.Run(name, func(t *testing.T) {
			ctx := operatorapi.WithCaller(t.Context(), admin)
			runner, err := operatorapi.CreateRunner.Do(ctx, c, operatorapi.CreateRunnerInput{
				Body: operatorapi.CreateRunnerBody{Name: name, TTL: operatorapi.Duration(time.Hour), Agents: "env=prod"},
			})
			require.NoError(t, err)
			assert.Equal(t, name, runner.Runner)
			_, err = operatorapi.GrantRunner.Do(ctx, c, operatorapi.GrantRunnerInput{Runner: name, Body: operatorapi.GrantRunnerBody{Agents: "env=dev"}})
			require.NoError(t, err)
			runners, err := operatorapi.ListRunners.Do(ctx, c, struct{}{})
			require.NoError(t, err)
			i := slices.IndexFunc(runners.Items, func(r operatorapi.Runner) bool { return r.Name == name })
			require.GreaterOrEqual(t, i, 0)
			assert.Equal(t, operatorapi.Duration(time.Hour), runners.Items[i].TTL)
			operator, err := operatorapi.CreateOperator.Do(ctx, c, operatorapi.CreateOperatorInput{
				Body: operatorapi.CreateOperatorBody{Name: name, Role: administration.RoleViewer},
			})
			require.NoError(t, err)
			assert.Equal(t, name, operator.Operator)
			detail, err := operatorapi.GetAgent.Do(ctx, c, operatorapi.GetAgentInput{Agent: "shop"})
			require.NoError(t, err)
			assert.Equal(t, agent.ID, detail.Agent.ID)
			_, err = operatorapi.GetAgent.Do(ctx, c, operatorapi.GetAgentInput{Agent: "none"})
			admintest.Refused(t, err, problem.NotFound)
			require.NoError(t, c.Close())
		})
	}
}

func TestLocal_AuditsChanges(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	open := func() *operatorapi.Local {
		admin, err := administration.Open(t.Context(), p.Data, p.Clock)
		require.NoError(t, err)
		return operatorapi.NewLocal(admin, zerolog.Nop())
	}
	l := open()
	ctx, dry := t.Context(), operatorapi.Write{DryRun: true}
	token, err := operatorapi.CreateToken.Do(ctx, l, operatorapi.CreateTokenInput{Body: operatorapi.CreateTokenBody{Name: "shops", Uses: 2}})
	require.NoError(t, err)
	_, err = operatorapi.RotateToken.Do(ctx, l, operatorapi.RotateTokenInput{Write: dry, ID: token.ID})
	require.NoError(t, err)
	_, err = operatorapi.RevokeToken.Do(ctx, l, operatorapi.TokenInput{ID: "none"})
	admintest.Refused(t, err, problem.NotFound)
	_, err = operatorapi.CreateWebhook.Do(ctx, l, operatorapi.CreateWebhookInput{Body: operatorapi.CreateWebhookBody{Name: "pager", WebhookSettings: operatorapi.WebhookSettings{URL: "https://hooks.example.com/SECRET"}}})
	require.NoError(t, err)
	rotation, err := operatorapi.RotateCA.Do(ctx, l, operatorapi.RotateCAInput{Write: dry, Step: ca.Start})
	require.NoError(t, err)
	assert.False(t, rotation.Changed)
	tokens, err := operatorapi.ListTokens.Do(ctx, l, struct{}{})
	require.NoError(t, err)
	require.Len(t, tokens.Items, 1)
	assert.Equal(t, 2, *tokens.Items[0].UsesLeft)
	agents, err := operatorapi.ListAgents.Do(ctx, l, operatorapi.ListAgentsInput{AgentFilter: operatorapi.AgentFilter{Selector: "env=prod"}})
	require.NoError(t, err)
	assert.Empty(t, agents.Agents)
	require.NoError(t, l.Close())

	l = open()
	log, err := operatorapi.GetOperatorAudit.Do(ctx, l, operatorapi.OperatorAuditInput{})
	require.NoError(t, err)
	var got []string
	for _, r := range log.Items {
		assert.True(t, strings.HasPrefix(r.Operator, "local"), r.Operator)
		assert.NotContains(t, string(r.Arguments)+r.Message, "SECRET")
		got = append(got, r.Command+" "+r.Name+" "+string(r.Outcome))
	}
	assert.ElementsMatch(t, []string{
		"create-token shops done", "revoke-token none refused", "create-webhook pager done",
	}, got)
	report, err := operatorapi.VerifyOperatorAudit.Do(ctx, l, operatorapi.VerifyAuditInput{Seq: log.Head.Seq, Hash: log.Head.Hash})
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	require.NoError(t, l.Close())
}
