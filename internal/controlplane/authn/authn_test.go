package authn_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// plane identifies its callers. It records the copies of agents' identities.
type plane struct {
	*admintest.Plane
	*authn.Authenticator
	clones []string
}

// Seen implements authn.Authenticator.Clones.
func (p *plane) Seen(_ context.Context, id string, c announce.Clone) {
	p.clones = append(p.clones, id+" "+c.ClusterUID)
}

func open(t *testing.T) *plane {
	p := &plane{Plane: admintest.Open(t)}
	p.Authenticator = &authn.Authenticator{
		Store: p.Database(), CA: p.Plane.CA, TrustDomain: datadir.DefaultTrustDomain, Now: p.Clock, OpenID: "settings", Clones: p,
	}
	return p
}

// issue makes a client certificate for spiffe://TRUST_DOMAIN/ROLE/NAME.
func (p *plane) issue(t *testing.T, role, name string) string {
	t.Helper()
	issued, _, err := p.Plane.CA.Client(name, trustanchor.LeafURI(p.TrustDomain, role, name), time.Hour, "test")
	require.NoError(t, err)
	return issued.Certificate
}

// agent adds an agent and makes a certificate for it.
func (p *plane) agent(t *testing.T, name string, change ...func(*store.Agent)) string {
	t.Helper()
	_, csr, _ := admintest.Request(t)
	req, err := ca.ParseRequest(csr)
	require.NoError(t, err)
	issued, err := p.Plane.CA.Agent(req, name+"."+datadir.DefaultAgentsDomain, &url.URL{Scheme: "spiffe", Host: p.TrustDomain, Path: "/agent/id-" + name}, time.Hour, "test")
	require.NoError(t, err)
	p.Agent(t, name, append(change, func(a *store.Agent) {
		if a.Key == "" {
			a.Key = authn.KeyPrint(admintest.Certificate(t, issued.Certificate))
		}
	})...)
	return issued.Certificate
}

func TestAgent_Identified(t *testing.T) {
	p, other := open(t), open(t)
	shop := p.agent(t, "shop")
	tunnel := func(certificate string) (string, error) {
		return p.AgentOfTunnel(*admintest.CallBy(t, certificate, "").TLS)
	}
	for name, c := range map[string]struct {
		certificate, cluster string
		code                 problem.Code // empty if the call is accepted
		tunnel               bool         // the tunnel gets a name
	}{
		"valid":          {shop, "uid-shop", "", true},
		"none":           {"", "uid-shop", controlapi.CodeCertificateUnknown, false},
		"another CA":     {other.agent(t, "shop"), "uid-shop", controlapi.CodeCertificateUnknown, false},
		"another role":   {p.issue(t, ca.RoleRunner, "ci"), "uid-shop", controlapi.CodeCertificateUnknown, false},
		"another key":    {p.agent(t, "bank", func(a *store.Agent) { a.Key = "another" }), "uid-bank", controlapi.CodeCertificateUnknown, false},
		"unknown":        {p.issue(t, ca.RoleAgent, "id-none"), "uid-none", controlapi.CodeAgentUnknown, true},
		"revoked":        {p.agent(t, "gone", func(a *store.Agent) { a.RevokedAt = p.Clock() }), "uid-gone", controlapi.CodeRevoked, true},
		"copied":         {shop, "uid-copy", controlapi.CodeIdentityCloned, true},
		"without origin": {shop, "", problem.BadRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := p.AgentOfRequest(admintest.CallBy(t, c.certificate, c.cluster))
			if c.code == "" {
				require.NoError(t, err)
				assert.Equal(t, "id-shop", id)
			} else {
				admintest.Refused(t, err, c.code)
				assert.Empty(t, id, "a refusal names nobody")
			}
			id, err = tunnel(c.certificate)
			assert.Equal(t, c.tunnel, err == nil && id != "", "%q, %v", id, err)
		})
	}
	assert.Equal(t, []string{"id-shop uid-copy"}, p.clones)
	p.Advance(2 * time.Hour)
	_, err := p.AgentOfRequest(admintest.CallBy(t, shop, "uid-shop"))
	admintest.Refused(t, err, controlapi.CodeCertificateExpired)

	for id, c := range map[string]struct{ cluster, want string }{
		"id-shop": {"uid-shop", ""}, "id-bank": {"uid-copy", "as a copy"}, "id-gone": {"uid-gone", server.ErrRevoked.Error()}, "id-none": {"", server.ErrRevoked.Error()},
	} {
		err := p.Admit(t.Context(), id, server.Login{Cluster: c.cluster})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

func TestRunner_Renew(t *testing.T) {
	p := open(t)
	issue := func() string {
		t.Helper()
		made, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour, Replace: true})
		require.NoError(t, err)
		return made.Certificate
	}
	call := func(certificate string) *http.Request { return admintest.CallBy(t, certificate, "") }
	renew := func(certificate string) *x509.Certificate {
		t.Helper()
		answer, err := p.Renew(call(certificate))
		require.NoError(t, err)
		return admintest.Certificate(t, answer.Certificate)
	}
	refused := func(certificate string, code problem.Code, words ...string) {
		t.Helper()
		answer, err := p.Renew(call(certificate))
		admintest.Refused(t, err, code, words...)
		assert.Zero(t, answer)
		name, err := p.RunnerOfRequest(call(certificate))
		require.Error(t, err)
		assert.Empty(t, name)
	}
	replaced, text := issue(), issue()
	first := admintest.Certificate(t, text)
	refused("", controlapi.CodeCertificateUnknown, "no client certificate")
	refused(p.agent(t, "shop"), controlapi.CodeCertificateUnknown, "runner create")
	refused(p.issue(t, ca.RoleRunner, "cd"), controlapi.CodeCertificateUnknown, "does not know Runner cd")
	refused(replaced, controlapi.CodeCertificateUnknown, "newer certificate")
	assert.Equal(t, first.NotAfter, renew(text).NotAfter, "it is not due")
	name, err := p.RunnerOfRequest(call(text))
	require.NoError(t, err)
	assert.Equal(t, "ci", name)
	assert.Equal(t, "runner/ci", p.ProvenName(call(text)))

	p.Advance(40 * time.Minute)
	next := renew(text)
	assert.Equal(t, first.SerialNumber, next.SerialNumber)
	assert.Equal(t, p.Clock().Add(time.Hour), next.NotAfter)
	known, err := p.Database().Runner(t.Context(), "ci")
	require.NoError(t, err)
	assert.Equal(t, next.NotAfter, known.ExpiresAt.UTC(), "so that a revocation lasts as long")
	p.Advance(3 * time.Hour)
	_, err = p.RunnerOfRequest(call(text))
	admintest.Refused(t, err, controlapi.CodeCertificateExpired, "renew the certificate")
	renew(text) // it has expired, which a Runner that slept may make good
	p.Advance(5 * time.Hour)
	refused(text, controlapi.CodeCertificateExpired, "longer --ttl")
	text = issue()
	require.NoError(t, p.Runners.Revoke(t.Context(), "ci"))
	refused(text, controlapi.CodeCertificateUnknown, "was revoked")
	assert.Equal(t, authn.RenewableUntil(p.Clock(), 365*24*time.Hour), p.Clock().Add(7*24*time.Hour))
}

func TestOperator_Identified(t *testing.T) {
	p := open(t)
	old, revoked := p.Operator(t, "ada", authn.RoleAdmin), p.Operator(t, "vic", authn.RoleViewer)
	ada := p.Operator(t, "ada", authn.RoleAdmin, func(o *administration.OperatorOptions) { o.Replace = true })
	require.NoError(t, p.Operators.Revoke(t.Context(), "vic"))
	for _, c := range []struct {
		certificate, name, want string
	}{
		{ada.Certificate, "ada", ""},
		{"", "", "no client certificate"},
		{p.issue(t, ca.RoleRunner, "ci"), "", "operator create"},
		{p.issue(t, ca.RoleOperator, "eve"), "eve", "does not know operator eve"},
		{old.Certificate, "ada", "newest credentials"},
		{revoked.Certificate, "vic", "was revoked"},
	} {
		o, err := p.OperatorOfRequest(admintest.CallBy(t, c.certificate, ""))
		assert.Equal(t, c.name, o.Name, "for the audit log")
		if c.want == "" {
			require.NoError(t, err)
		} else {
			admintest.Refused(t, err, controlapi.CodeCertificateUnknown, c.want)
		}
	}
	p.Advance(2 * time.Hour)
	_, err := p.OperatorOfRequest(admintest.CallBy(t, ada.Certificate, ""))
	admintest.Refused(t, err, controlapi.CodeCertificateExpired, "operator create ada")
	assert.Empty(t, p.ProvenName(admintest.CallBy(t, ada.Certificate, "")))
	assert.True(t, authn.Includes(authn.RoleAdmin, authn.RoleOperator) && !authn.Includes(authn.RoleViewer, authn.RoleOperator) && !authn.Includes("", authn.RoleViewer))
}

func TestConsoleSession_Ends(t *testing.T) {
	p := open(t)
	long := func(o *administration.OperatorOptions) { o.TTL = 24 * time.Hour }
	p.Operator(t, "ada", authn.RoleAdmin, long)
	p.Operator(t, "bob", authn.RoleAdmin, long)
	enter := func(name string) string {
		t.Helper()
		o, err := p.Database().Operator(t.Context(), name)
		require.NoError(t, err)
		code, _, err := p.ConsoleCode(t.Context(), o)
		require.NoError(t, err)
		id, _, err := p.EnterConsole(t.Context(), code)
		require.NoError(t, err)
		_, _, err = p.EnterConsole(t.Context(), code)
		require.ErrorIs(t, err, store.ErrNotFound, "a code is good once")
		return id
	}
	openID, err := p.OpenConsole(t.Context(), store.Operator{Name: authn.OpenIDPrefix + "eve", Role: authn.RoleViewer, ExpiresAt: p.Clock().Add(time.Hour)})
	require.NoError(t, err)
	for _, c := range []struct {
		id  string
		end func(id string) error
	}{
		{enter("ada"), func(id string) error { return p.LeaveConsole(t.Context(), id) }},
		{enter("bob"), func(string) error { return p.Operators.Revoke(t.Context(), "bob") }},
		{openID, func(string) error { p.OpenID = "other settings"; return nil }},
		{enter("ada"), func(string) error { p.Advance(12 * time.Hour); return nil }},
	} {
		session, o, err := p.ConsoleSession(t.Context(), c.id)
		require.NoError(t, err)
		assert.Equal(t, session.Operator, o.Name)
		require.NoError(t, c.end(c.id))
		_, _, err = p.ConsoleSession(t.Context(), c.id)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}
