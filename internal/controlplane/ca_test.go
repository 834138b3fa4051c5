package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestIntermediateCA_RenewedWhileServing: agents follow.
func TestIntermediateCA_RenewedWhileServing(t *testing.T) {
	p := start(t)
	before := p.ca.SignerID(ca.RoleAgent)
	p.clock.forward(p.ca.IntermediatesEnd().Sub(p.clock.now()) - ca.RenewBefore - time.Hour)
	c := p.registered("shop")
	c.beatCAs()
	p.clock.forward(2 * time.Hour)
	await.Until(t, "the intermediate CAs are renewed", func() bool { return p.ca.IntermediatesEnd().Sub(p.clock.now()) > ca.RenewBefore })
	assert.Equal(t, before, p.ca.SignerID(ca.RoleAgent), "other control planes have a moment to learn of it")
	assert.Zero(t, c.beatCAs().RenewWithin)
	p.clock.forward(2 * time.Minute)
	assert.NotEqual(t, before, p.ca.SignerID(ca.RoleAgent))
	assert.Equal(t, 600, c.beatCAs().RenewWithin)
	c.renew()
	assert.Zero(t, c.beatCAs().RenewWithin)
	tun, down := c.connect()
	defer down()
	c.answer(tun)
	await.Until(t, "connected", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	down()
}

func (p *plane) issued(o operators.IssuedOptions) []operators.IssuedCertificate {
	p.t.Helper()
	o.Limit = 100
	list, err := p.admin.CA.Issued(p.t.Context(), o)
	require.NoError(p.t, err)
	return list
}
