package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authority"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func (p *plane) issued(o operators.IssuedOptions) []operators.IssuedCertificate {
	p.t.Helper()
	o.Limit = 100
	list, err := p.admin.CA.Issued(p.t.Context(), o)
	require.NoError(p.t, err)
	return list
}

// TestCertificate_Logged issues certificates in each way that there is for agents and Runners.
func TestCertificate_Logged(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	c.renew()
	p.runner("ci")
	leaf, err := ca.ParseCertificate(c.id.Certificate)
	require.NoError(t, err)

	ofShop := p.issued(operators.IssuedOptions{Name: "shop"})
	require.Len(t, ofShop, 2)
	assert.Equal(t, ofShop, p.issued(operators.IssuedOptions{Kind: ca.RoleAgent, Name: c.id.AgentID}), "by its ID")
	assert.Equal(t, "renewal", ofShop[0].Reason)
	assert.Contains(t, ofShop[1].Reason, "registration with token ")
	assert.Equal(t, "shop", ofShop[0].AgentName)
	assert.Equal(t, leaf.SerialNumber.Text(16), ofShop[0].Serial)
	assert.Equal(t, p.ca.SignerID(ca.RoleAgent), ofShop[0].Issuer)
	assert.Equal(t, ofShop[:1], p.issued(operators.IssuedOptions{Serial: ofShop[0].Serial}))

	ofRunner := p.issued(operators.IssuedOptions{Kind: ca.RoleRunner})
	require.Len(t, ofRunner, 1)
	assert.Equal(t, "runner create", ofRunner[0].Reason)
	_, err = p.admin.Runners.Grant(t.Context(), "ci", credentials.Grant{}, "")
	require.NoError(t, err)
	assert.Equal(t, "runner grant", p.issued(operators.IssuedOptions{Name: "ci"})[0].Reason)
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleCA}))
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleServer}))

	_, err = p.ca.ControlPlane(credentials.ControlPlaneURI(p.cfg.TrustDomain), time.Hour)
	require.NoError(t, err)
	assert.NotEqual(t, ca.RoleControlPlane, p.issued(operators.IssuedOptions{})[0].Role, "there are too many of them")
	assert.NotEmpty(t, p.issued(operators.IssuedOptions{Kind: ca.RoleControlPlane}))

	for _, bad := range []operators.IssuedOptions{{Kind: "runners", Limit: 1}, {Limit: 0}} {
		_, err = p.admin.CA.Issued(t.Context(), bad)
		require.Error(t, err)
	}
}

// TestCertificate_LoggedBeforeIssue: the call fails while the log is full, and succeeds later.
func TestCertificate_LoggedBeforeIssue(t *testing.T) {
	p := start(t)
	c := p.cluster("shop")
	now := p.clock.now()
	full := func(name string) error {
		return p.store.Update(t.Context(), func(tx *store.Tx) error {
			for i := range authority.MaxIssued {
				err := tx.AddCertificate(t.Context(), store.Certificate{
					SHA256: name + time.Duration(i).String(), Role: ca.RoleAgent, Name: name, IssuedAt: now, NotAfter: now.Add(time.Hour),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, c.register(p.token()))
	require.NoError(t, full(c.id.AgentID))
	before := len(p.issued(operators.IssuedOptions{Kind: ca.RoleServer}))
	_, err := c.client.Renew(t.Context(), csr(t, newKey(t)))
	var refused *problem.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, problem.TooManyRequests, refused.Code)
	assert.Contains(t, refused.Detail, "within an hour")
	require.NoError(t, c.beat(), "the certificate that it has is good")
	_, err = p.ca.Server([]string{"localhost"}, time.Hour)
	require.NoError(t, err, "only agents and Runners are held to it")
	assert.Len(t, p.issued(operators.IssuedOptions{Kind: ca.RoleServer}), before+1)
	require.NoError(t, p.registered("other").beat())

	p.clock.forward(authority.IssuedWithin + time.Minute)
	_, err = c.client.Renew(t.Context(), csr(t, newKey(t)))
	require.NoError(t, err)
}

// TestCertificate_LogOutlivesExpiry cleans up just before and after the end of a record.
func TestCertificate_LogOutlivesExpiry(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	record := p.issued(operators.IssuedOptions{Name: "shop"})[0]
	clean := func(at time.Time) int {
		t.Helper()
		require.NoError(t, authority.ForgetCertificates(t.Context(), p.store, at))
		return len(p.issued(operators.IssuedOptions{Name: c.id.AgentID}))
	}
	assert.Equal(t, 1, clean(record.NotAfter.Add(authority.CertificatesFor)))
	assert.Zero(t, clean(record.NotAfter.Add(authority.CertificatesFor+time.Second)))
}
