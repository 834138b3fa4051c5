package castore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestCertificate_LimitPerHolder(t *testing.T) {
	p := admintest.Open(t)
	runner := func(name string) error {
		_, _, err := p.CA.Client(name, trustanchor.LeafURI(datadir.DefaultTrustDomain, ca.RoleRunner, name), time.Hour, "test")
		return err
	}
	require.NoError(t, p.Database().Update(t.Context(), func(tx *store.Tx) error {
		for i := range castore.MaxIssued {
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
	p.Advance(castore.IssuedWithin)
	require.NoError(t, runner("ci"))
	p.Advance(castore.CertificatesFor + 2*time.Hour)
	require.NoError(t, castore.ForgetCertificates(t.Context(), p.Database(), p.Clock()))
	left, err := p.Database().Certificates(t.Context(), store.CertificatesWanted{Names: []string{"ci", "cd"}, Limit: 1000})
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCA_OpenRefusesOneOfTheDatabase(t *testing.T) {
	p := admintest.Open(t)
	require.NoError(t, p.Database().MakeAuthority(t.Context(), store.Sealed{Version: 1, Text: "sealed"}))
	domains, err := castore.Domains(t.Context(), p.Database())
	require.NoError(t, err)
	_, err = castore.Open(t.Context(), p.Data, p.Database(), domains, p.Clock, true)
	require.ErrorContains(t, err, "give --ca-key-file")
}

// TestUpkeep_WritesTrust for a CA in the database alone.
func TestUpkeep_WritesTrust(t *testing.T) {
	p := admintest.Open(t)
	shared := datadir.Data{Dir: t.TempDir(), Database: store.Postgres{URL: "postgresql://db"}}
	keyFile := filepath.Join(shared.Dir, "key")
	require.NoError(t, castore.MakeKey(keyFile))
	var err error
	shared.CAKey, err = castore.ReadKey(keyFile)
	require.NoError(t, err)
	for _, data := range []datadir.Data{shared, {Dir: t.TempDir()}} {
		require.NoError(t, castore.NewUpkeep(castore.Upkeep{CA: p.CA, Data: data, Now: p.Clock}).Ready())
		text, err := os.ReadFile(filepath.Join(data.Dir, datadir.FileTrust))
		if !data.Shared() {
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, string(p.CA.Bundle()), string(text))
	}
}
