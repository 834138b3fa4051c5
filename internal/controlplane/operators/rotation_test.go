package operators_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestRotation_WaitsForAgentsAndRunners(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	_, err := p.Runners.Issue(t.Context(), operators.RunnerOptions{Name: "ci", TTL: time.Hour})
	require.NoError(t, err)
	step := func(s ca.Step, o operators.RotateOptions, waiting map[string]string) {
		t.Helper()
		_, changed, err := p.Admin.CA.Rotate(t.Context(), s, o)
		if waiting == nil {
			require.NoError(t, err)
			assert.Equal(t, !o.DryRun, changed)
			return
		}
		var notReady *operators.NotReadyError
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
	_, _, err = p.Admin.CA.Rotate(t.Context(), ca.Sign, operators.RotateOptions{})
	admintest.Refused(t, err, problem.Conflict, "start")
	step(ca.Start, operators.RotateOptions{DryRun: true}, nil)
	step(ca.Start, operators.RotateOptions{}, nil)
	step(ca.Sign, operators.RotateOptions{}, map[string]string{"shop": "has not said yet whom it trusts"})
	trust("old", old)
	step(ca.Sign, operators.RotateOptions{}, map[string]string{"shop": "does not trust the new CA yet"})
	_, err = p.CA.Reload()
	require.NoError(t, err)
	trust(controlapi.BundleHash(string(p.CA.Bundle())), old)
	step(ca.Sign, operators.RotateOptions{}, nil)
	dropped := "uses a certificate of the CA that is to be dropped"
	step(ca.Finish, operators.RotateOptions{}, map[string]string{"shop": dropped, "ci": "has its certificate from the CA that is to be dropped"})
	trust("", "new")
	_, err = p.Runners.Issue(t.Context(), operators.RunnerOptions{Name: "ci", TTL: time.Hour, Replace: true})
	require.NoError(t, err)
	step(ca.Finish, operators.RotateOptions{}, nil)
	status, err := p.Admin.CA.Status(t.Context())
	require.NoError(t, err)
	roles := map[string]int{}
	for _, c := range status.CAs {
		roles[c.Role]++
	}
	assert.Equal(t, 1, roles[operators.CASigns])
	assert.Equal(t, 1, roles[operators.CAFormer])
	assert.Equal(t, 1, roles[operators.CASignsFor+ca.RoleAgent])
	assert.Empty(t, status.Warnings)
	p.Advance(10*365*24*time.Hour - 30*24*time.Hour)
	status, err = p.Admin.CA.Status(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, status.Warnings)
}

func TestRootKey_ExportImport(t *testing.T) {
	p := admintest.Open(t)
	file := filepath.Join(t.TempDir(), "root.pem")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := p.Admin.CA.ExportRoot(t.Context(), file)
	require.ErrorContains(t, err, "exists")
	require.NoError(t, os.Remove(file))
	status, err := p.Admin.CA.ExportRoot(t.Context(), file)
	require.NoError(t, err)
	assert.True(t, status.RootAway)
	_, err = p.Admin.CA.ExportRoot(t.Context(), file+"2")
	require.ErrorIs(t, err, operators.ErrNoRootKeys)
	var away *ca.RootAwayError
	_, _, err = p.Admin.CA.Rotate(t.Context(), ca.Start, operators.RotateOptions{})
	require.ErrorAs(t, err, &away)
	_, _, err = p.Admin.CA.ImportRoot(t.Context(), file+"2")
	require.ErrorContains(t, err, "root CA's key")
	status, renewed, err := p.Admin.CA.ImportRoot(t.Context(), file)
	require.NoError(t, err)
	assert.False(t, status.RootAway || renewed)
	assert.FileExists(t, file)
}

func TestCertificate_List(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	ada := admintest.Certificate(t, p.Operator(t, "ada", operators.RoleAdmin).Certificate)
	require.NoError(t, p.Database().Update(t.Context(), func(tx *store.Tx) error {
		for serial, role := range map[string]string{"a1": ca.RoleAgent, "c1": ca.RoleControlPlane} {
			err := tx.AddCertificate(t.Context(), store.Certificate{Serial: serial, Role: role, Name: "id-shop", IssuedAt: p.Clock().Add(-time.Minute), SHA256: serial})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	serial := ada.SerialNumber.Text(16)
	for _, c := range []struct {
		o    operators.IssuedOptions
		want []string
	}{
		{operators.IssuedOptions{Name: "ada", Limit: 10}, []string{serial}},
		{operators.IssuedOptions{Name: "shop", Limit: 10}, []string{"a1", "c1"}},
		{operators.IssuedOptions{Name: "shop", Limit: 10, Kind: ca.RoleAgent}, []string{"a1"}},
		{operators.IssuedOptions{Serial: "A:1", Limit: 10}, []string{"a1"}},
		{operators.IssuedOptions{Kind: ca.RoleControlPlane, Limit: 10}, []string{"c1"}},
	} {
		list, err := p.Admin.CA.Issued(t.Context(), c.o)
		require.NoError(t, err)
		var got []string
		for _, i := range list {
			got = append(got, i.Serial)
			assert.Equal(t, i.Role == ca.RoleAgent, i.AgentName == "shop")
		}
		assert.ElementsMatch(t, c.want, got)
	}
	for _, o := range []operators.IssuedOptions{{Kind: "none", Limit: 1}, {Limit: 0}} {
		_, err := p.Admin.CA.Issued(t.Context(), o)
		admintest.Refused(t, err, problem.Invalid)
	}
}
