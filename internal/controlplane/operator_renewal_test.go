package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
)

// renewing returns an operator's client that renews its certificate, and what it has saved.
func (p *plane) renewing(c operators.Credentials) (client *operatorapi.Client, saved *[]operators.Credentials) {
	p.t.Helper()
	client, saved = p.as(c), &[]operators.Credentials{}
	client.Renewing(operatorapi.Renewal{
		Save: func(c operators.Credentials) error {
			*saved = append(*saved, c)
			return nil
		},
		Note: func(err error) { assert.NoError(p.t, err) },
		Now:  p.clock.now,
	})
	return client, saved
}

func calls(t *testing.T, c *operatorapi.Client) error {
	t.Helper()
	_, err := operatorapi.ListTokens.Do(t.Context(), c, struct{}{})
	return err
}

// TestOperatorRenewal_DuringCalls: any call renews a certificate that is due, for as long as the
// first one was.
func TestOperatorRenewal_DuringCalls(t *testing.T) {
	p := start(t)
	first := p.operator("alice", operators.RoleViewer)
	b := p.signedIn(first)
	client, saved := p.renewing(first)
	require.NoError(t, calls(t, client))
	assert.Empty(t, *saved, "not due")
	same, err := operatorapi.RenewOperator.Do(t.Context(), p.as(first), operatorapi.RenewOperatorInput{})
	require.NoError(t, err)
	assert.Equal(t, first.Certificate, same.Certificate, "one that has most of its life left stays")

	p.clock.forward(45 * time.Minute)
	client, saved = p.renewing(first)
	require.NoError(t, calls(t, client))
	require.NoError(t, calls(t, client))
	require.Len(t, *saved, 1)
	second := (*saved)[0]
	assert.Equal(t, first.Key, second.Key)
	assert.NotEqual(t, first.Certificate, second.Certificate)

	p.clock.forward(40 * time.Minute)
	err = calls(t, p.as(first))
	requireCode(t, err, controlapi.CodeCertificateExpired)
	assert.Contains(t, err.Error(), "pipeops-controlplane operator create alice --role ROLE -o FILE --force")
	require.NoError(t, calls(t, p.as(second)))
	_, body := b.get("/console/")
	assert.Contains(t, body, "alice, viewer", "the session goes on")

	client, saved = p.renewing(second)
	require.NoError(t, calls(t, client))
	require.Len(t, *saved, 1)
	config, err := (*saved)[0].TLSConfig()
	require.NoError(t, err)
	assert.InDelta(t, 66*time.Minute, config.Certificates[0].Leaf.NotAfter.Sub(config.Certificates[0].Leaf.NotBefore), float64(2*time.Second), "it does not grow")
}
