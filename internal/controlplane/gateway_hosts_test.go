package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// TestOrdersCertificate: visitors choose the names of their handshakes, and come again after one
// that failed.
func TestOrdersCertificate(t *testing.T) {
	s, ctx, now := storetest.Open(t, &databases, postgres.Chosen(t)), t.Context(), time.Now()
	require.NoError(t, s.InsertAgent(ctx, store.Agent{ID: "a1", Name: "shop", ClusterUID: "u", State: "online", RegisteredAt: now}))
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutRoutes(ctx, "a1", nil, store.RouteSet{Digest: "d", At: now}); err != nil {
			return err
		}
		for _, host := range []string{"www.example.org", "*.example.org"} {
			if err := tx.PutClaim(ctx, store.HostClaim{AgentID: "a1", Host: host, Proof: hosts.TXT, ClaimedAt: now, ProvenAt: now}); err != nil {
				return err
			}
		}
		return nil
	}))
	table := gateway.NewTable(s, time.Now)
	require.NoError(t, table.Refresh(ctx))
	orders := func(host string) bool { return ordersCertificate(ctx, s, table, host) }
	assert.True(t, orders("www.example.org"))
	assert.False(t, orders("any.example.org"), "of a wildcard's there could be any number")
	assert.False(t, orders("www.example.com"))

	require.NoError(t, s.PutCertificateFailure(ctx, store.CertificateFailure{Host: "www.example.org", Failures: 1, NextAt: now}))
	assert.False(t, orders("www.example.org"), "only the keeper tries again")
	require.NoError(t, s.DeleteCertificateFailure(ctx, "www.example.org"))
	assert.True(t, orders("www.example.org"))
}
