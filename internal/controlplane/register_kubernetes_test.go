package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// publicToken creates a token without a secret, for a cluster with a key.
func (p *plane) publicToken(key *ecdsa.PrivateKey) controlapi.Token {
	p.t.Helper()
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public()}}})
	require.NoError(p.t, err)
	token, _, err := p.admin.Tokens.Create(p.t.Context(), administration.TokenOptions{Kubernetes: &store.Kubernetes{Keys: string(keys)}})
	require.NoError(p.t, err)
	return token
}

// TestRegister_ServiceAccountIsRecorded: the audit log of operators has the token, the account, the
// pod and the node of each registration and of each refusal.
func TestRegister_ServiceAccountIsRecorded(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		p := startOn(t, on)
		key := selfsigned.Key(t)
		token := p.publicToken(key)
		proof := func(account string) controlapi.Token {
			now := p.clock.now()
			return token.With(signed(t, jose.ES256, key, map[string]any{
				"iss": administration.DefaultKubernetesIssuer, "sub": "system:serviceaccount:pipeops:" + account, "aud": p.Advertised().API, "jti": rand.Text(),
				"iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
				"kubernetes.io": map[string]any{"pod": map[string]any{"name": "agent-x1"}, "node": map[string]any{"name": "node-1"}},
			}))
		}
		require.NoError(t, p.cluster("shop").register(proof("pipeops-agent")))
		requireProblem(t, p.cluster("evil").register(proof("default")), controlapi.CodeServiceAccountRefused, "its subject")
		forged := token.With(signed(t, jose.ES256, selfsigned.Key(t), map[string]any{"iss": administration.DefaultKubernetesIssuer, "sub": "x"}))
		requireProblem(t, p.cluster("evil").register(forged), controlapi.CodeServiceAccountRefused, "failed to verify")

		var seen []string
		var first operatorapi.OperatorRecord
		for _, r := range p.records(4) {
			if r.Command == "register-by-service-account" {
				seen = append(seen, r.Operator+" "+r.Name+" "+string(r.Outcome))
				first = r
			}
		}
		assert.ElementsMatch(t, []string{"token/" + token.ID + " shop done", "token/" + token.ID + " evil refused", "openid evil refused"}, seen)
		assert.JSONEq(t, `{"token":"`+token.ID+`","agent":"shop","subject":"system:serviceaccount:pipeops:pipeops-agent","pod":"agent-x1","node":"node-1"}`, string(first.Arguments))
	})
}

// TestRegister_ServiceAccountInConsole: the console shows whom a token trusts, and how to install
// an agent by its successor.
func TestRegister_ServiceAccountInConsole(t *testing.T) {
	p := start(t)
	token := p.publicToken(selfsigned.Key(t))
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	_, body := b.get("/console/enrolment")
	assert.Contains(t, body, "for pipeops:pipeops-agent")
	status, body := b.change("/console/tokens/"+token.ID+"/rotate", url.Values{"overlap": {""}})
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "The token has no secret. Agents of its cluster register with it, as pipeops:pipeops-agent.")
	assert.Contains(t, body, "serviceAccountToken.enabled=true")
	assert.NotContains(t, body, "install.sh")
}
