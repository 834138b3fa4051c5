package controlplane

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func approve(o *operators.TokenOptions) { o.Approve = true }

// waiting is a cluster whose registration waits for the operator.
func (p *plane) waiting(name string, token controlapi.Token) *cluster {
	p.t.Helper()
	c := p.cluster(name)
	requireProblem(p.t, c.register(token), controlapi.CodeApprovalPending, name, "waits for approval", "agent approve")
	return c
}

func (p *plane) pending() []store.Enrolment {
	p.t.Helper()
	list, err := p.admin.Enrolments.List(p.t.Context())
	require.NoError(p.t, err)
	return list
}

func TestRegister_WaitsForApproval(t *testing.T) {
	p := start(t)
	token := p.token(approve, func(o *operators.TokenOptions) { o.Uses, o.Labels = 1, map[string]string{"region": "eu"} })
	c := p.waiting("shop", token)
	for range 3 { // the agent asks again and again, and after a restart
		requireProblem(t, c.register(token), controlapi.CodeApprovalPending)
	}
	list := p.pending()
	require.Len(t, list, 1)
	e := list[0]
	assert.Equal(t, "shop", e.Name)
	assert.Equal(t, c.uid, e.ClusterUID)
	assert.Equal(t, "127.0.0.1", e.Address)
	assert.Equal(t, "1.0", e.Request.AgentVersion)
	assert.Empty(t, e.Request.CSR)
	print, err := controlapi.KeyFingerprint(c.key.Public())
	require.NoError(t, err)
	assert.Equal(t, print, e.Key)
	assert.Empty(t, p.queued(), "Runners hear nothing of it")
	_, err = p.admin.Runners.Create(t.Context(), "r", time.Hour, false)
	require.NoError(t, err)
	agents, err := p.view.Snapshot(t.Context(), "r")
	require.NoError(t, err)
	assert.Empty(t, agents)

	state, err := c.client.CheckToken(t.Context(), token, controlapi.TokenCheck{Key: print})
	require.NoError(t, err)
	assert.True(t, state.Approval)
	assert.Equal(t, &controlapi.EnrolmentState{ID: e.ID, State: "pending"}, state.Enrolment)

	_, err = p.admin.Enrolments.Approve(t.Context(), "shop")
	require.NoError(t, err)
	assert.Empty(t, p.pending())
	require.NoError(t, c.register(token))
	assert.Equal(t, e.ID, c.id.AgentID, "it is called as it was all the time")
	require.NoError(t, c.beat())
	events := p.queued()
	require.Equal(t, announce.AgentRegistered, events[0].Type)
	agent, err := events[0].Agent()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"own": "label", "region": "eu"}, agent.Labels)
	assert.Equal(t, []announce.Endpoint{{Address: p.Advertised().Edge, ServerName: c.id.ServerName}}, agent.Endpoints)
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, tokens[0].Uses, "one use, for all that was asked")
	assert.Equal(t, c.id.AgentID, tokens[0].LastUsedBy)
}

func TestApprove_DuplicateNames(t *testing.T) {
	p := start(t)
	token := p.token(approve)
	p.registered("bank")
	requireProblem(t, p.cluster("bank").withUID("other").register(token), controlapi.CodeNameTaken, "bank")

	owner := p.waiting("shop", token)
	thief := p.waiting("shop", token)
	_, err := p.admin.Enrolments.Approve(t.Context(), "shop")
	require.ErrorContains(t, err, "2 registrations wait with the name shop")
	for _, e := range p.pending() {
		if print, _ := controlapi.KeyFingerprint(owner.key.Public()); e.Key == print {
			_, err = p.admin.Enrolments.Approve(t.Context(), e.ID)
			require.NoError(t, err)
		}
	}
	require.NoError(t, owner.register(token))
	requireProblem(t, thief.register(token), controlapi.CodeApprovalPending)
	require.Len(t, p.pending(), 1)
	assert.Equal(t, "shop", p.pending()[0].Replaces, "the operator sees in whose place it would come")
	require.NoError(t, owner.beat(), "nobody has taken it")

	thief.name = "other" // what is decided on is what was shown
	id := p.pending()[0].ID
	requireProblem(t, thief.register(token), controlapi.CodeApprovalPending)
	require.Len(t, p.pending(), 1)
	assert.NotEqual(t, id, p.pending()[0].ID)
}

func (c *cluster) withUID(uid string) *cluster {
	c.uid = uid
	return c
}

// TestToken_OnlyEnrols tries every call of the control plane with a token alone.
func TestToken_OnlyEnrols(t *testing.T) {
	p := start(t)
	victim := p.registered("shop")
	require.NoError(t, victim.beat())
	client := p.client() // trusts the control plane, and shows no certificate
	token := p.token(approve)
	may := map[string]bool{"POST /v1/agents/register": true, "POST /v1/tokens/check": true}
	body, err := json.Marshal(controlapi.RenewRequest{CSR: csr(t, newKey(t)), Clock: p.clock.now()}) // the only one that is read first
	require.NoError(t, err)
	tried := 0
	for _, call := range append(p.calls(t), "GET "+announce.SnapshotPath, "GET "+announce.SnapshotPath+"/shop", "GET "+announce.SnapshotPath+"/"+victim.id.AgentID+"/timeline") {
		method, path, _ := strings.Cut(call, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, p.Advertised().API+path, bytes.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token.Credential())
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if !may[call] {
			tried++
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, call)
		}
	}
	assert.GreaterOrEqual(t, tried, 6, "the calls are listed")

	// What the body could prove instead of TLS, a thief has not.
	_, err = victim.client.Recover(t.Context(), victim.id.Certificate, newKey(t), csr(t, newKey(t)))
	requireProblem(t, err, controlapi.CodeCertificateUnknown)
	// It can ask to be let in, and is nobody until then.
	thief := p.waiting("thief", token)
	requireProblem(t, thief.beat(), controlapi.CodeCertificateUnknown)
	require.NoError(t, victim.beat())
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated}, typesOf(p.queued()))
}

// calls are METHOD PATH of each call of the agents' API.
func (p *plane) calls(t *testing.T) (calls []string) {
	t.Helper()
	p.get(p.client(), "/openapi.json", func(resp *http.Response) {
		require.Equal(t, http.StatusOK, resp.StatusCode)
		calls = callsOf(t, resp.Body)
	})
	return calls
}
