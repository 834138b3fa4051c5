package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestCertificates(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		of := func(role, name, serial string, at time.Time) store.Certificate {
			return store.Certificate{
				Serial: serial, Role: role, Name: name, Issuer: "ca", NotBefore: at, NotAfter: at.Add(time.Hour), SHA256: "sum" + serial, IssuedAt: at, Reason: "test",
			}
		}
		a, b, c := of("agent", "a1", "1", noon), of("runner", "ci", "2", noon.Add(time.Minute)), of("agent", "a2", "3", noon.Add(2*time.Minute))
		for _, one := range []store.Certificate{a, b, c} {
			require.NoError(t, s.AddCertificate(ctx, one))
		}
		require.Error(t, s.AddCertificate(ctx, a), "a record is never replaced")
		for want, by := range map[*[]store.Certificate]store.CertificatesWanted{
			{c, b, a}: {Limit: 10},
			{c, b}:    {Limit: 2},
			{c, a}:    {Roles: []string{"agent"}, Limit: 10},
			{b, a}:    {Names: []string{"a1", "ci"}, Limit: 10},
			{b}:       {Serial: "2", Limit: 10},
			nil:       {Roles: []string{"runner"}, Names: []string{"a1"}, Limit: 10},
		} {
			got, err := s.Certificates(ctx, by)
			require.NoError(t, err)
			if want == nil {
				assert.Empty(t, got)
				continue
			}
			assert.Equal(t, *want, got)
		}
		n, err := s.CertificatesSince(ctx, "agent", "a1", noon.Add(-time.Second))
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = s.CertificatesSince(ctx, "agent", "a1", noon)
		require.NoError(t, err)
		assert.Zero(t, n)
		require.NoError(t, s.ForgetCertificates(ctx, b.NotAfter))
		left, err := s.Certificates(ctx, store.CertificatesWanted{Limit: 10})
		require.NoError(t, err)
		assert.Equal(t, []store.Certificate{c, b}, left)
	})
}

func TestCertificateFailures(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, err := s.CertificateFailure(ctx, "b.example.org")
		require.ErrorIs(t, err, store.ErrNotFound)
		b := store.CertificateFailure{Host: "b.example.org", Failures: 1, Reason: "the CA refuses", NextAt: noon}
		a := store.CertificateFailure{Host: "a.example.org", Failures: 3, Reason: "no answer", NextAt: noon}
		for _, f := range []store.CertificateFailure{b, a} {
			require.NoError(t, s.PutCertificateFailure(ctx, f))
		}
		b.Failures, b.Reason, b.NextAt = 2, "the CA limits", noon.Add(time.Minute)
		require.NoError(t, s.PutCertificateFailure(ctx, b))
		got, err := s.CertificateFailure(ctx, "b.example.org")
		require.NoError(t, err)
		assert.Equal(t, b, got)
		require.NoError(t, s.DeleteCertificateFailure(ctx, "b.example.org"))
		list, err := s.CertificateFailures(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.CertificateFailure{a}, list)
	})
}
