package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func TestCertificateFailures(t *testing.T) { postgres.OnEach(t, testCertificateFailures) }

func testCertificateFailures(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
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
}
