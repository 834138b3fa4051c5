package authority_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authority"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestCAKeyFile_Refuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.key")
	_, err := authority.ReadKey(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, authority.MakeKey(file))
	require.ErrorContains(t, authority.MakeKey(file), "--output")
	key, err := authority.ReadKey(file)
	require.NoError(t, err)
	assert.True(t, key.Given())
	require.NoError(t, os.Chmod(file, 0o604))
	_, err = authority.ReadKey(file)
	require.ErrorContains(t, err, "chmod 600")
	for _, text := range []string{"", "short", string(make([]byte, 5<<10))} {
		require.NoError(t, os.Chmod(file, 0o600))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = authority.ReadKey(file)
		require.ErrorIs(t, err, ca.ErrBadKey)
	}
}

func TestCertificate_LimitPerHolder(t *testing.T) {
	p := admintest.Open(t)
	runner := func(name string) error {
		_, _, err := p.CA.Client(name, trustanchor.LeafURI(datadir.DefaultTrustDomain, ca.RoleRunner, name), time.Hour, "test")
		return err
	}
	require.NoError(t, p.Database().Update(t.Context(), func(tx *store.Tx) error {
		for i := range authority.MaxIssued {
			serial := "s" + time.Duration(i).String()
			err := tx.AddCertificate(t.Context(), store.Certificate{Serial: serial, SHA256: serial, Role: ca.RoleRunner, Name: "ci", IssuedAt: p.Clock()})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	err := runner("ci")
	admintest.Refused(t, err, problem.TooManyRequests, "600 certificates within an hour")
	require.NoError(t, runner("cd"))
	p.Advance(authority.IssuedWithin)
	require.NoError(t, runner("ci"))
	p.Advance(authority.CertificatesFor + 2*time.Hour)
	require.NoError(t, authority.ForgetCertificates(t.Context(), p.Database(), p.Clock()))
	left, err := p.Database().Certificates(t.Context(), store.CertificatesWanted{Names: []string{"ci", "cd"}, Limit: 1000})
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCA_OpenRefusesOneOfTheDatabase(t *testing.T) {
	p := admintest.Open(t)
	require.NoError(t, p.Database().MakeAuthority(t.Context(), store.Sealed{Version: 1, Text: "sealed"}))
	domains, err := authority.Domains(t.Context(), p.Database())
	require.NoError(t, err)
	_, err = authority.Open(t.Context(), p.Data, p.Database(), domains, p.Clock, true)
	require.ErrorContains(t, err, "give --ca-key-file")
}
