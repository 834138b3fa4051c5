package enrolment_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

// plane registers agents.
type plane struct {
	*admintest.Plane
	*enrolment.Registrar
	t     *testing.T
	joins *[]enrolment.Join
	fail  *error
}

// Seen implements authn.Authenticator.Clones.
func (plane) Seen(context.Context, string, announce.Clone) {}

func open(t *testing.T) plane {
	p := plane{Plane: admintest.Open(t), t: t, joins: new([]enrolment.Join), fail: new(error)}
	callers := &authn.Authenticator{Store: p.Database(), CA: p.CA, TrustDomain: datadir.DefaultTrustDomain, Now: p.Clock, Clones: p}
	p.Registrar = enrolment.New(p.Database(), p.CA, callers, discovery.Directory{AgentsDomain: datadir.DefaultAgentsDomain}, enrolment.Config{
		TrustDomain: datadir.DefaultTrustDomain, CertificateTTL: time.Hour, Heartbeats: 30, Now: p.Clock, Log: zerolog.Nop(),
		Edge: func() string { return "cp.example.com:9443" }, Tunnels: func(string) []controlapi.TunnelEndpoint { return nil },
		Record: p.record,
	})
	return p
}

func (p plane) token(opts administration.TokenOptions) (secret, id string) {
	p.t.Helper()
	token, kept, err := p.Tokens.Create(p.t.Context(), opts)
	require.NoError(p.t, err)
	return token.Reveal(), kept.ID
}

// register registers the cluster uid-NAME.
func (p plane) register(token, name, csr string, change ...func(*controlapi.RegisterRequest)) (controlapi.Identity, error) {
	req := controlapi.RegisterRequest{Name: name, ClusterUID: "uid-" + name, CSR: csr, Clock: p.Clock()}
	for _, c := range change {
		c(&req)
	}
	return p.Register(p.t.Context(), token, req)
}

func TestToken_EndsRegistration(t *testing.T) {
	p := open(t)
	_, csr, _ := admintest.Request(t)
	refused := func(secret string, code problem.Code) {
		t.Helper()
		_, err := p.register(secret, "shop", csr)
		admintest.Refused(t, err, code)
		_, err = p.CheckToken(t.Context(), secret, controlapi.TokenCheck{})
		admintest.Refused(t, err, code)
	}
	other, _ := open(t).token(administration.TokenOptions{})
	refused(other, controlapi.CodeTokenUnknown)
	refused(other[:20], controlapi.CodeTokenUnknown)
	for code, end := range map[problem.Code]func(secret, id string) error{
		controlapi.CodeTokenRevoked: func(_, id string) error { return p.Tokens.Revoke(t.Context(), id) },
		controlapi.CodeTokenRotated: func(_, id string) error {
			_, _, err := p.Tokens.Rotate(t.Context(), id, 0, "")
			return err
		},
		controlapi.CodeTokenUsedUp: func(secret, _ string) error {
			_, err := p.register(secret, "first", csr)
			require.NoError(t, err)
			_, err = p.register(secret, "first", csr)
			return err // the same request takes no other use
		},
		controlapi.CodeTokenExpired: func(string, string) error { p.Advance(2 * time.Hour); return nil },
	} {
		secret, id := p.token(administration.TokenOptions{Uses: 1, TTL: time.Hour})
		require.NoError(t, end(secret, id))
		refused(secret, code)
	}
}

func TestRegister_Refuses(t *testing.T) {
	p := open(t)
	_, csr, _ := admintest.Request(t)
	p.Agent(t, "bank")
	p.Agent(t, "gone", func(a *store.Agent) { a.RevokedAt = p.Clock() })
	secret, id := p.token(administration.TokenOptions{Uses: 1})
	label := func(key, value string) func(*controlapi.RegisterRequest) {
		return func(r *controlapi.RegisterRequest) { r.Labels = map[string]string{key: value} }
	}
	for field, c := range map[string]struct {
		code   problem.Code
		change func(*controlapi.RegisterRequest)
	}{
		"clock":             {controlapi.CodeClockSkew, func(r *controlapi.RegisterRequest) { r.Clock = p.Clock().Add(2 * time.Hour) }},
		"csr":               {problem.Invalid, func(r *controlapi.RegisterRequest) { r.CSR = "none" }},
		"too long or":       {problem.Invalid, label("", "v")},
		"hidden characters": {problem.Invalid, label("k", "\u200b")},
		"CLUSTER_NAME":      {controlapi.CodeNameTaken, func(r *controlapi.RegisterRequest) { r.Name = "bank" }},
		"agent delete":      {controlapi.CodeRevoked, func(r *controlapi.RegisterRequest) { r.ClusterUID = "uid-gone" }},
	} {
		_, err := p.register(secret, "shop", csr, c.change)
		admintest.Refused(t, err, c.code, field)
	}
	kept, err := p.Database().Token(t.Context(), id)
	require.NoError(t, err)
	assert.Zero(t, kept.Uses)
	_, err = p.register(secret, "gone", csr, func(r *controlapi.RegisterRequest) { r.ClusterUID = "another" })
	require.NoError(t, err, "the name of a revoked agent is free")
}

func TestRegister_AnotherInstallationKeepsID(t *testing.T) {
	p := open(t)
	secret, _ := p.token(administration.TokenOptions{Labels: map[string]string{"env": "prod"}})
	_, csr, key := admintest.Request(t)
	first, err := p.register(secret, "shop", csr, func(r *controlapi.RegisterRequest) { r.Labels = map[string]string{"env": "dev", "team": "pay"} })
	require.NoError(t, err)
	require.NoError(t, p.Database().Update(t.Context(), func(tx *store.Tx) error {
		a, err := tx.Agent(t.Context(), first.AgentID)
		assert.Equal(t, map[string]string{"env": "prod", "team": "pay"}, a.Labels, "the token's labels win")
		assert.Equal(t, key, a.Key)
		return err
	}))
	_, csr, key = admintest.Request(t)
	second, err := p.register(secret, "shop2", csr, func(r *controlapi.RegisterRequest) { r.ClusterUID = "uid-shop" })
	require.NoError(t, err)
	assert.Equal(t, first.AgentID, second.AgentID)
	a, err := p.Database().Agent(t.Context(), first.AgentID)
	require.NoError(t, err)
	assert.Equal(t, [3]string{"shop2", key, ""}, [3]string{a.Name, a.Key, a.PreviousKey}, "the first one's key ends")
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentRemoved, announce.AgentUpdated}, p.Announced(t))
}

func TestApproval_HoldsRegistration(t *testing.T) {
	p := open(t)
	secret, id := p.token(administration.TokenOptions{Uses: 1, TTL: time.Hour, Approve: true})
	_, csr, key := admintest.Request(t)
	ask := func(name string, code problem.Code, change ...func(*controlapi.RegisterRequest)) {
		t.Helper()
		_, err := p.register(secret, name, csr, change...)
		admintest.Refused(t, err, code)
	}
	state := func() controlapi.EnrolmentState {
		t.Helper()
		s, err := p.CheckToken(t.Context(), secret, controlapi.TokenCheck{Key: key})
		require.NoError(t, err)
		require.NotNil(t, s.Enrolment)
		return *s.Enrolment
	}
	ask("shop", controlapi.CodeApprovalPending)
	first := state().ID
	ask("shop", controlapi.CodeApprovalPending)
	assert.Equal(t, first, state().ID)
	ask("bank", controlapi.CodeIdentityCloned)
	ask("store", controlapi.CodeApprovalPending, func(r *controlapi.RegisterRequest) { r.ClusterUID = "uid-shop" })
	assert.NotEqual(t, first, state().ID, "the operator decides about the name that was shown")
	_, err := p.Enrolments.Deny(t.Context(), "store", "who\n is this?")
	require.NoError(t, err)
	assert.Equal(t, "who is this?", state().Reason)
	ask("shop", controlapi.CodeEnrolmentDenied, func(r *controlapi.RegisterRequest) { r.Name = "store" })
	_, err = p.Enrolments.Deny(t.Context(), "store", "")
	admintest.Refused(t, err, problem.NotFound)
	p.Advance(2 * time.Hour) // the token expires meanwhile
	approved, err := p.Enrolments.Approve(t.Context(), "store")
	require.NoError(t, err)
	identity, err := p.register(secret, "store", csr, func(r *controlapi.RegisterRequest) { r.ClusterUID = "uid-shop" })
	require.NoError(t, err)
	assert.Equal(t, approved.ID, identity.AgentID)
	require.NoError(t, p.Tokens.Revoke(t.Context(), id))
	_, err = p.CheckToken(t.Context(), secret, controlapi.TokenCheck{Key: key})
	admintest.Refused(t, err, controlapi.CodeTokenRevoked)
}

func TestApproval_Refuses(t *testing.T) {
	p := open(t)
	secret, id := p.token(administration.TokenOptions{Uses: 1, Approve: true})
	for i := range 1 + enrolment.SpareEnrolments {
		_, csr, _ := admintest.Request(t)
		_, err := p.register(secret, "shop", csr, func(r *controlapi.RegisterRequest) { r.ClusterUID += string(rune('a' + i)) })
		admintest.Refused(t, err, controlapi.CodeApprovalPending, "agent approve ")
	}
	_, csr, _ := admintest.Request(t)
	_, err := p.register(secret, "bank", csr)
	admintest.Refused(t, err, controlapi.CodeApprovalPending, "agent deny")
	_, err = p.Enrolments.Approve(t.Context(), "shop")
	admintest.Refused(t, err, problem.Conflict, "registrations wait with the name shop")
	_, err = p.Enrolments.Approve(t.Context(), "bank")
	admintest.Refused(t, err, problem.NotFound)
	_, err = p.Enrolments.Deny(t.Context(), "shop", string(make([]byte, 600)))
	admintest.Refused(t, err, problem.Invalid, "--reason")
	waiting, err := p.Enrolments.List(t.Context())
	require.NoError(t, err)
	require.Len(t, waiting, 1+enrolment.SpareEnrolments)
	_, err = p.Enrolments.Approve(t.Context(), waiting[0].ID)
	require.NoError(t, err)
	_, err = p.Enrolments.Approve(t.Context(), waiting[1].ID)
	admintest.Refused(t, err, problem.Conflict, "token rotate "+id)
	p.Advance(25 * time.Hour)
	waiting, err = p.Enrolments.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, waiting, "they have lapsed")
	require.NoError(t, enrolment.Forget(t.Context(), p.Database(), p.Clock()))
	left, err := p.Database().Enrolments(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// as is the context of a call that an agent's certificate made from its cluster.
func as(t *testing.T, certificate, cluster string) (ctx context.Context) {
	t.Helper()
	keep := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })
	authn.WithCall(controlapi.WithOrigin(keep)).ServeHTTP(nil, admintest.CallBy(t, certificate, cluster))
	return ctx
}

func TestRenew_KeyChain(t *testing.T) {
	p := open(t)
	secret, _ := p.token(administration.TokenOptions{})
	old, csr, _ := admintest.Request(t)
	first, err := p.register(secret, "shop", csr)
	require.NoError(t, err)
	renew := func(certificate, cluster string, code problem.Code) (next string) {
		t.Helper()
		_, csr, _ := admintest.Request(t)
		renewed, err := p.Renew(as(t, certificate, cluster), first.AgentID, controlapi.RenewRequest{CSR: csr, Clock: p.Clock()})
		if code != "" {
			admintest.Refused(t, err, code)
			return ""
		}
		require.NoError(t, err)
		return renewed.Certificate
	}
	renew(first.Certificate, "uid-bank", controlapi.CodeIdentityCloned)
	lost := renew(first.Certificate, "uid-shop", "")
	second := renew(first.Certificate, "uid-shop", "") // the answer with the other was lost
	renew(lost, "uid-shop", controlapi.CodeCertificateUnknown)

	p.Advance(2 * time.Hour) // the certificates expire
	_, csr, _ = admintest.Request(t)
	proof, err := controlapi.SignRecovery(old, csr, p.Clock())
	require.NoError(t, err)
	req := controlapi.RenewRequest{CSR: csr, Clock: p.Clock(), OldCertificate: first.Certificate, Proof: proof}
	for want, change := range map[string]func(*controlapi.RenewRequest){
		"clock":                func(r *controlapi.RenewRequest) { r.Clock = r.Clock.Add(2 * time.Hour) },
		"cannot be read":       func(r *controlapi.RenewRequest) { r.OldCertificate = "none" },
		"not one of this":      func(r *controlapi.RenewRequest) { r.OldCertificate = foreign(t) },
		"the proof":            func(r *controlapi.RenewRequest) { r.OldCertificate = second },
		"certificate request":  func(r *controlapi.RenewRequest) { r.CSR = "none" },
		"the old certificate'": func(r *controlapi.RenewRequest) { r.Proof = "" },
	} {
		bad := req
		change(&bad)
		identity, err := p.Renew(as(t, "", "uid-shop"), "", bad)
		require.ErrorContains(t, err, want)
		assert.Zero(t, identity)
	}
	recovered, err := p.Renew(as(t, "", "uid-shop"), "", req)
	require.NoError(t, err)
	assert.Equal(t, first.AgentID, recovered.AgentID)
	_, err = p.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	renew(recovered.Certificate, "uid-shop", controlapi.CodeRevoked)
	_, err = p.Agents.Remove(t.Context(), "shop")
	require.NoError(t, err)
	renew(recovered.Certificate, "uid-shop", controlapi.CodeAgentUnknown)
}

// foreign returns an agent's certificate of another CA.
func foreign(t *testing.T) string {
	t.Helper()
	p := open(t)
	secret, _ := p.token(administration.TokenOptions{})
	_, csr, _ := admintest.Request(t)
	other, err := p.register(secret, "shop", csr)
	require.NoError(t, err)
	return other.Certificate
}
