package controlplane

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

func TestRegister(t *testing.T) {
	p := start(t)
	c := p.cluster("shop")
	token := p.token(func(o *administration.TokenOptions) { o.Uses, o.Labels = 2, map[string]string{"region": "eu"} })
	usesLeft := func() int {
		t.Helper()
		state, err := c.client.CheckToken(t.Context(), token, controlapi.TokenCheck{})
		require.NoError(t, err)
		assert.Equal(t, token.ID, state.ID)
		assert.WithinDuration(t, p.clock.now().Add(time.Hour), state.ExpiresAt, time.Minute)
		assert.Equal(t, p.Advertised().Tunnel, state.Tunnel.Address)
		return *state.UsesLeft
	}
	assert.Equal(t, 2, usesLeft())
	require.NoError(t, c.register(token))
	assert.Equal(t, 1, usesLeft(), "a check takes no use")
	require.NoError(t, c.client.CheckIdentity(t.Context()))

	cert, err := ca.ParseCertificate(c.id.Certificate)
	require.NoError(t, err)
	assert.Equal(t, []string{"spiffe://pipeops.internal/agent/" + c.id.AgentID, c.id.ServerName}, []string{cert.URIs[0].String(), cert.DNSNames[0]})
	assert.Equal(t, p.Advertised().Tunnel, c.id.Tunnel.Address)
	assert.Equal(t, 30, c.id.HeartbeatInterval)
	events := p.queued()
	require.Equal(t, []announce.Type{announce.AgentRegistered}, typesOf(events))
	agent, err := events[0].Agent()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"own": "label", "region": "eu"}, agent.Labels)
	assert.Equal(t, announce.StatePending, agent.State)
	assert.Equal(t, []announce.Endpoint{{Address: p.Advertised().Edge, ServerName: c.id.ServerName}}, agent.Endpoints)
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, c.id.AgentID, tokens[0].LastUsedBy)

	again := p.cluster("shop") // another installation in the same cluster
	require.NoError(t, again.register(token))
	requireProblem(t, c.beat(), controlapi.CodeCertificateUnknown, "another key", "register again")
	requireProblem(t, p.cluster("bank").register(token), controlapi.CodeTokenUsedUp, "used 2 times", "--uses")
}

func approve(o *administration.TokenOptions) { o.Approve = true }

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

// TestRegister_WaitsForApproval: enrolment tests every state of it. A thief of the token registers
// the same cluster with another key.
func TestRegister_WaitsForApproval(t *testing.T) {
	p := start(t)
	token := p.token(approve, func(o *administration.TokenOptions) { o.Uses, o.Labels = 1, map[string]string{"region": "eu"} })
	c := p.waiting("shop", token)
	requireProblem(t, c.register(token), controlapi.CodeApprovalPending)
	list := p.pending()
	require.Len(t, list, 1)
	e := list[0]
	print, err := controlapi.KeyFingerprint(c.key.Public())
	require.NoError(t, err)
	assert.Equal(t, []string{"shop", c.uid, "127.0.0.1", "1.0", "", print}, []string{e.Name, e.ClusterUID, e.Address, e.Request.AgentVersion, e.Request.CSR, e.Key})
	assert.Empty(t, p.queued(), "Runners hear nothing of it")
	agents, err := p.sees(p.issue("r", ""))
	require.NoError(t, err)
	assert.Empty(t, agents)
	thief := p.waiting("shop", token)
	_, err = p.admin.Enrolments.Approve(t.Context(), e.ID)
	require.NoError(t, err)
	require.NoError(t, c.register(token))
	assert.Equal(t, e.ID, c.id.AgentID, "its ID has not changed")
	requireProblem(t, thief.register(token), controlapi.CodeApprovalPending)
	require.Len(t, p.pending(), 1)
	assert.Equal(t, "shop", p.pending()[0].Replaces, "the operator sees in whose place it would come")
	_, err = p.admin.Enrolments.Deny(t.Context(), "shop", "not one\nof ours")
	require.NoError(t, err)
	err = thief.register(token)
	requireProblem(t, err, controlapi.CodeEnrolmentDenied, "was denied", ": not one of ours", "agent approve")
	var refusal *controlapi.Error
	require.ErrorAs(t, err, &refusal)
	assert.GreaterOrEqual(t, refusal.RetryAfter, time.Minute, "not in a hot loop")
	require.NoError(t, c.beat(), "no agent has taken its place")
	events := p.queued()
	require.Equal(t, announce.AgentRegistered, events[0].Type)
	agent, err := events[0].Agent()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"own": "label", "region": "eu"}, agent.Labels)
}

// TestToken_OnlyEnrols tries every call of the control plane with a token alone.
func TestToken_OnlyEnrols(t *testing.T) {
	p := start(t)
	victim := p.registered("shop")
	require.NoError(t, victim.beat())
	client := p.client() // trusts the control plane, and shows no certificate
	calls := callsOf(t, p.call(client, http.MethodGet, "/openapi.json", "").Body)
	token := p.token(approve)
	may := map[string]bool{"POST /v1/agents/register": true, "POST /v1/tokens/check": true}
	body, err := json.Marshal(controlapi.RenewRequest{CSR: csr(t, selfsigned.Key(t)), Clock: p.clock.now()}) // the only one that is read first
	require.NoError(t, err)
	tried := 0
	for _, call := range append(calls, "GET "+announce.SnapshotPath, "GET "+announce.SnapshotPath+"/shop", "GET "+announce.SnapshotPath+"/"+victim.id.AgentID+"/timeline") {
		method, path, _ := strings.Cut(call, " ")
		resp := p.call(client, method, path, string(body), "Authorization", "Bearer "+token.Credential())
		if !may[call] {
			tried++
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, call)
		}
	}
	assert.GreaterOrEqual(t, tried, 6, "the calls are listed")

	// A thief does not have what the body could prove instead of TLS.
	_, err = victim.client.Recover(t.Context(), victim.id.Certificate, selfsigned.Key(t), csr(t, selfsigned.Key(t)))
	requireProblem(t, err, controlapi.CodeCertificateUnknown)
	// It can ask to be let in, and is nobody until then.
	thief := p.waiting("thief", token)
	requireProblem(t, thief.beat(), controlapi.CodeCertificateUnknown)
	require.NoError(t, victim.beat())
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated}, typesOf(p.queued()))
}

// TestToken_StoredBeforeReturned: the database takes no more tokens. An operator who was shown one
// would hand it out.
func TestToken_StoredBeforeReturned(t *testing.T) {
	p := startOn(t, postgres.SQLite)
	kept := p.token()
	db := storetest.SQLite(t, filepath.Join(p.cfg.DataDir, datadir.FileDatabase))
	_, err := db.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON tokens BEGIN SELECT RAISE(ABORT, 'full'); END`)
	require.NoError(t, err)

	for name, make := range map[string]func() (controlapi.Token, store.Token, error){
		"create": func() (controlapi.Token, store.Token, error) {
			return p.admin.Tokens.Create(t.Context(), administration.TokenOptions{})
		},
		"rotate": func() (controlapi.Token, store.Token, error) {
			return p.admin.Tokens.Rotate(t.Context(), kept.ID, 0, "")
		},
	} {
		token, stored, err := make()
		require.ErrorContains(t, err, "full", name)
		assert.Zero(t, token, name)
		assert.Zero(t, stored, name)
	}
}
