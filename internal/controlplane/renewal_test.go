package controlplane

import (
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authority"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// runnerFor makes a Runner whose certificates are valid for ttl.
func (p *plane) runnerFor(name string, ttl time.Duration) string {
	p.t.Helper()
	credentials, err := p.admin.Runners.Issue(p.t.Context(), operators.RunnerOptions{Name: name, TTL: ttl})
	require.NoError(p.t, err)
	file := filepath.Join(p.t.TempDir(), name+".json")
	require.NoError(p.t, credentials.Write(file))
	return file
}

func leafIn(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	credentials, err := credentials.Load(file)
	require.NoError(t, err)
	cert, err := credentials.TLSCertificate()
	require.NoError(t, err)
	return cert.Leaf
}

// TestRunnerRenewal_InTime: a Runner calls now and then, from its file as commands do.
func TestRunnerRenewal_InTime(t *testing.T) {
	p := start(t)
	file := p.runnerFor("ci", operators.DefaultRunnerTTL)
	first := leafIn(t, file)
	assert.WithinDuration(t, p.clock.now().Add(24*time.Hour), first.NotAfter, time.Minute)

	p.clock.forward(11 * time.Hour)
	require.NoError(t, p.login(file).Check(t.Context()), "asking early is harmless")
	p.clock.forward(4 * time.Hour)
	require.NoError(t, p.snapshotBy(p.login(file)))
	assert.Equal(t, first, leafIn(t, file))
	assert.Len(t, p.issued(operators.IssuedOptions{Name: "ci"}), 1, "and issues nothing")

	p.clock.forward(2 * time.Hour)
	require.NoError(t, p.snapshotBy(p.login(file)))
	second := leafIn(t, file)
	assert.WithinDuration(t, p.clock.now().Add(24*time.Hour), second.NotAfter, time.Minute)
	assert.Equal(t, credentials.KeyFingerprint(first), credentials.KeyFingerprint(second))
	assert.Equal(t, first.SerialNumber, second.SerialNumber)
	log := p.issued(operators.IssuedOptions{Name: "ci"})
	require.Len(t, log, 2)
	assert.Equal(t, "renewal", log[0].Reason)
	known, err := p.store.Runner(t.Context(), "ci")
	require.NoError(t, err)
	assert.Equal(t, second.NotAfter.UTC(), known.ExpiresAt, "so that a revocation lasts as long")
}

// TestRunnerRenewal_RevokedMeanwhile: what was signed meanwhile is not handed out.
func TestRunnerRenewal_RevokedMeanwhile(t *testing.T) {
	p := start(t)
	file := p.runnerFor("ci", operators.DefaultRunnerTTL)
	known, err := p.store.Runner(t.Context(), "ci")
	require.NoError(t, err)
	issued, err := p.ca.Renew(leafIn(t, file), known.TTL, authority.ReasonRenewal)
	require.NoError(t, err)
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
	err = p.store.Update(t.Context(), func(tx *store.Tx) error { return p.authn.KeepRenewed(t.Context(), tx, known, issued) })
	require.ErrorContains(t, err, "was changed at this moment")
}
