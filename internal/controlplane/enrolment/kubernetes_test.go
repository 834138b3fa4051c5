package enrolment_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const audience = "https://cp.example.com:8443"

// cluster makes service-account tokens as a cluster does.
type cluster struct {
	plane
	key *ecdsa.PrivateKey
}

func (c cluster) jwks() string {
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: c.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	require.NoError(c.t, err)
	return string(set)
}

// trust creates a token without a secret for the cluster.
func (c cluster) trust(opts administration.TokenOptions) controlapi.Token {
	c.t.Helper()
	opts.Kubernetes = &store.Kubernetes{Keys: c.jwks()}
	token, _, err := c.Tokens.Create(c.t.Context(), opts)
	require.NoError(c.t, err)
	require.True(c.t, token.Public())
	return token
}

type claims = map[string]any

func (c cluster) claims(change claims) claims {
	all := claims{
		"iss": administration.DefaultKubernetesIssuer, "sub": "system:serviceaccount:pipeops:pipeops-agent", "aud": []string{audience}, "jti": rand.Text(),
		"iat": c.Clock().Unix(), "nbf": c.Clock().Unix(), "exp": c.Clock().Add(10 * time.Minute).Unix(),
		"kubernetes.io": claims{"namespace": "pipeops", "pod": claims{"name": "pipeops-agent-x1", "uid": "u1"}, "node": claims{"name": "node-1"}},
	}
	for name, value := range change {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, all claims) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
	require.NoError(t, err)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	made, err := signer.Sign(text)
	require.NoError(t, err)
	compact, err := made.CompactSerialize()
	require.NoError(t, err)
	return compact
}

func (c cluster) serviceAccountToken(change claims) string {
	return sign(c.t, jose.ES256, c.key, c.claims(change))
}

// TestRegister_ByServiceAccount registers an agent without a secret, and again after it has lost
// its identity.
func TestRegister_ByServiceAccount(t *testing.T) {
	c := cluster{open(t), selfsigned.Key(t)}
	token := c.trust(administration.TokenOptions{Uses: 2, Labels: map[string]string{"env": "prod"}})
	_, csr, _ := admintest.Request(t)
	proof := token.With(c.serviceAccountToken(nil)).Credential()
	state, err := c.CheckToken(t.Context(), proof, controlapi.TokenCheck{})
	require.NoError(t, err)
	assert.Equal(t, 2, *state.UsesLeft)
	first, err := c.register(proof, "shop", csr)
	require.NoError(t, err)
	again, err := c.register(proof, "shop", csr)
	require.NoError(t, err, "its answer was lost")
	assert.Equal(t, first.AgentID, again.AgentID)
	want := enrolment.Join{Token: token.ID, Agent: "shop", Subject: "system:serviceaccount:pipeops:pipeops-agent", Pod: "pipeops-agent-x1", Node: "node-1"}
	assert.Equal(t, []enrolment.Join{want, want}, c.joined())

	_, csr, _ = admintest.Request(t)
	_, err = c.register(proof, "shop", csr)
	admintest.Refused(t, err, controlapi.CodeServiceAccountRefused, "by the holder of another key")
	lost, err := c.register(token.With(c.serviceAccountToken(nil)).Credential(), "shop", csr)
	require.NoError(t, err)
	assert.Equal(t, first.AgentID, lost.AgentID)
	agent, err := c.Database().Agent(t.Context(), first.AgentID)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"env": "prod"}, agent.Labels)
	_, csr, _ = admintest.Request(t)
	_, err = c.register(token.With(c.serviceAccountToken(nil)).Credential(), "shop", csr)
	admintest.Refused(t, err, controlapi.CodeTokenUsedUp)
}

// TestRegister_RefusesServiceAccounts tries tokens that register no agent.
func TestRegister_RefusesServiceAccounts(t *testing.T) {
	c := cluster{open(t), selfsigned.Key(t)}
	token := c.trust(administration.TokenOptions{})
	other := cluster{c.plane, selfsigned.Key(t)}
	encode := base64.RawURLEncoding.EncodeToString
	unsigned := func() string {
		text, err := json.Marshal(c.claims(nil))
		require.NoError(t, err)
		return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
	}
	after := func(d time.Duration) int64 { return c.Clock().Add(d).Unix() }
	for name, attack := range map[string]struct{ proof, says string }{
		"another cluster":        {other.serviceAccountToken(nil), "failed to verify"},
		"another issuer":         {other.serviceAccountToken(claims{"iss": "https://other.example.com"}), `its issuer (iss) is "https://other.example.com"`},
		"another audience":       {c.serviceAccountToken(claims{"aud": "https://kubernetes.default.svc"}), "expected audience"},
		"no audience":            {c.serviceAccountToken(claims{"aud": nil}), "expected audience"},
		"another account":        {c.serviceAccountToken(claims{"sub": "system:serviceaccount:pipeops:default"}), `and not "system:serviceaccount:pipeops:pipeops-agent"`},
		"another namespace":      {c.serviceAccountToken(claims{"sub": "system:serviceaccount:shop:pipeops-agent"}), "its subject"},
		"a longer account":       {c.serviceAccountToken(claims{"sub": "system:serviceaccount:pipeops:pipeops-agent2"}), "its subject"},
		"a person":               {c.serviceAccountToken(claims{"sub": "pipeops:pipeops-agent"}), "its subject"},
		"no subject":             {c.serviceAccountToken(claims{"sub": nil}), "no sub"},
		"an expired token":       {c.serviceAccountToken(claims{"iat": after(-time.Hour), "exp": after(-time.Second)}), "expired"},
		"no end":                 {c.serviceAccountToken(claims{"exp": nil}), "expired"},
		"a token of later":       {c.serviceAccountToken(claims{"nbf": after(time.Hour)}), "not before"},
		"a token from later":     {c.serviceAccountToken(claims{"iat": after(time.Hour), "exp": after(2 * time.Hour)}), "in the future"},
		"a long-lived token":     {c.serviceAccountToken(claims{"exp": after(2 * time.Hour)}), "longer than 1h"},
		"no beginning":           {c.serviceAccountToken(claims{"iat": nil}), "longer than 1h"},
		"a token without a pod":  {c.serviceAccountToken(claims{"kubernetes.io": claims{"namespace": "pipeops"}}), "not bound to a pod"},
		"no claims of a cluster": {c.serviceAccountToken(claims{"kubernetes.io": nil}), "not bound to a pod"},
		"HS256":                  {sign(t, jose.HS256, []byte(c.jwks()), c.claims(nil)), "unexpected signature algorithm"},
		"none":                   {unsigned(), "not valid"},
		"no token":               {"x", "not valid"},
	} {
		_, csr, _ := admintest.Request(t)
		_, err := c.register(token.With(attack.proof).Credential(), "shop", csr)
		admintest.Refused(t, err, controlapi.CodeServiceAccountRefused, attack.says)
		assert.NotContains(t, err.Error(), strings.Split(attack.proof, ".")[0]+".", name)
		_, err = c.CheckToken(t.Context(), token.With(attack.proof).Credential(), controlapi.TokenCheck{})
		admintest.Refused(t, err, controlapi.CodeServiceAccountRefused, attack.says)
	}
	agents, err := c.Agents.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, agents)

	// A token with a secret has no use of a proof, and an unknown one has the same answer.
	secret, id := c.token(administration.TokenOptions{})
	unknown, err := controlapi.NewPublicToken("")
	require.NoError(t, err)
	parsed, err := controlapi.ParseToken(strings.Split(secret, "_")[0] + "_" + id)
	require.NoError(t, err)
	_, csr, _ := admintest.Request(t)
	for _, text := range []string{
		unknown.With(c.serviceAccountToken(nil)).Credential(), parsed.With(c.serviceAccountToken(nil)).Credential(), token.Reveal(),
		token.With(strings.Repeat("x", 9000)).Credential(), "pipeops_" + token.ID + "_" + strings.Repeat("a", 52),
	} {
		_, err := c.register(text, "shop", csr)
		admintest.Refused(t, err, controlapi.CodeTokenUnknown)
	}
}

// TestRegister_EndedServiceAccounts: a token without a secret ends as others do, for who proves to
// be of the cluster. Its successor may have other keys.
func TestRegister_EndedServiceAccounts(t *testing.T) {
	c := cluster{open(t), selfsigned.Key(t)}
	token := c.trust(administration.TokenOptions{TTL: time.Hour})
	refused := func(token controlapi.Token, proof string, code problem.Code) {
		t.Helper()
		_, csr, _ := admintest.Request(t)
		_, err := c.register(token.With(proof).Credential(), "shop", csr)
		admintest.Refused(t, err, code)
	}
	next := cluster{c.plane, selfsigned.Key(t)}
	successor, kept, err := c.Tokens.Rotate(t.Context(), token.ID, 0, next.jwks())
	require.NoError(t, err)
	assert.Equal(t, administration.DefaultServiceAccount, kept.Kubernetes.ServiceAccount)
	refused(token, c.serviceAccountToken(nil), controlapi.CodeTokenRotated)
	refused(token, next.serviceAccountToken(nil), controlapi.CodeServiceAccountRefused)
	refused(successor, c.serviceAccountToken(nil), controlapi.CodeServiceAccountRefused)
	_, csr, _ := admintest.Request(t)
	_, err = c.register(successor.With(next.serviceAccountToken(nil)).Credential(), "shop", csr)
	require.NoError(t, err)
	require.NoError(t, c.Tokens.Revoke(t.Context(), successor.ID))
	refused(successor, next.serviceAccountToken(nil), controlapi.CodeTokenRevoked)
	expired := c.trust(administration.TokenOptions{TTL: time.Hour})
	c.Advance(2 * time.Hour)
	refused(expired, c.serviceAccountToken(nil), controlapi.CodeTokenExpired)

	_, secret, err := c.Tokens.Create(t.Context(), administration.TokenOptions{})
	require.NoError(t, err)
	_, _, err = c.Tokens.Rotate(t.Context(), secret.ID, 0, next.jwks())
	admintest.Refused(t, err, problem.Invalid, "--kubernetes-jwks", "has a secret")
}

// TestApproval_ByServiceAccount: the operator decides, while the kubelet replaces the token.
func TestApproval_ByServiceAccount(t *testing.T) {
	c := cluster{open(t), selfsigned.Key(t)}
	token := c.trust(administration.TokenOptions{Uses: 1, Approve: true})
	_, csr, _ := admintest.Request(t)
	for range 2 {
		_, err := c.register(token.With(c.serviceAccountToken(nil)).Credential(), "shop", csr)
		admintest.Refused(t, err, controlapi.CodeApprovalPending)
		c.Advance(8 * time.Minute)
	}
	assert.Empty(t, c.joined(), "nothing is decided")
	_, err := c.Enrolments.Approve(t.Context(), "shop")
	require.NoError(t, err)
	_, err = c.register(token.With(c.serviceAccountToken(nil)).Credential(), "shop", csr)
	require.NoError(t, err)
	assert.Len(t, c.joined(), 1)
}

// TestRegister_NoRecordNoCertificate: what the audit log cannot hold is not done.
func TestRegister_NoRecordNoCertificate(t *testing.T) {
	c := cluster{open(t), selfsigned.Key(t)}
	token := c.trust(administration.TokenOptions{})
	full := problem.Errorf(problem.Unavailable, "", "the log is full")
	*c.fail = full
	_, csr, _ := admintest.Request(t)
	id, err := c.register(token.With(c.serviceAccountToken(nil)).Credential(), "shop", csr)
	require.ErrorIs(t, err, full)
	assert.Zero(t, id)
}

// joined returns the registrations that were recorded.
func (p plane) joined() []enrolment.Join { return *p.joins }

// record implements enrolment.Config.Record.
func (p plane) record(ctx context.Context, j enrolment.Join, refused error, issue func(context.Context) error) error {
	if *p.fail != nil {
		return *p.fail
	}
	if refused != nil {
		return refused
	}
	*p.joins = append(*p.joins, j)
	return issue(ctx)
}
