package administration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestRotation_WaitsForAgentsAndRunners(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	_, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour})
	require.NoError(t, err)
	step := func(s ca.Step, o administration.RotateOptions, waiting map[string]string) {
		t.Helper()
		_, changed, err := p.Admin.CA.Rotate(t.Context(), s, o)
		if waiting == nil {
			require.NoError(t, err)
			assert.Equal(t, !o.DryRun, changed)
			return
		}
		var notReady *administration.NotReadyError
		require.ErrorAs(t, err, &notReady)
		got := map[string]string{}
		for _, d := range notReady.NotReady {
			got[d.Name] = d.Reason
		}
		assert.Equal(t, waiting, got)
		assert.ErrorContains(t, err, "--force")
	}
	trust := func(bundle, issuer string) {
		t.Helper()
		require.NoError(t, p.Database().PutAgentTrust(t.Context(), store.AgentTrust{AgentID: "id-shop", Bundle: bundle, Issuer: issuer}))
	}
	old := ca.KeyID(p.CA.Certificate())
	_, _, err = p.Admin.CA.Rotate(t.Context(), ca.Sign, administration.RotateOptions{})
	admintest.Refused(t, err, problem.Conflict, "start")
	step(ca.Start, administration.RotateOptions{DryRun: true}, nil)
	step(ca.Start, administration.RotateOptions{}, nil)
	step(ca.Sign, administration.RotateOptions{}, map[string]string{"shop": "has not reported which CAs it trusts"})
	trust("old", old)
	step(ca.Sign, administration.RotateOptions{}, map[string]string{"shop": "does not trust the new CA yet"})
	_, err = p.CA.Reload()
	require.NoError(t, err)
	trust(controlapi.BundleHash(string(p.CA.Bundle())), old)
	step(ca.Sign, administration.RotateOptions{}, nil)
	dropped := "uses a certificate of the CA that is to be dropped"
	step(ca.Finish, administration.RotateOptions{}, map[string]string{"shop": dropped, "ci": "has its certificate from the CA that is to be dropped"})
	trust("", "new")
	_, err = p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour, Replace: true})
	require.NoError(t, err)
	step(ca.Finish, administration.RotateOptions{}, nil)
	status, err := p.Admin.CA.Status(t.Context())
	require.NoError(t, err)
	roles := map[string]int{}
	for _, c := range status.CAs {
		roles[c.Role]++
	}
	assert.Equal(t, 1, roles[administration.CASigns])
	assert.Equal(t, 1, roles[administration.CAFormer])
	assert.Equal(t, 1, roles[administration.CASignsFor+ca.RoleAgent])
	assert.Empty(t, status.Warnings)
	p.Advance(10*365*24*time.Hour - 30*24*time.Hour)
	status, err = p.Admin.CA.Status(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, status.Warnings)
}
