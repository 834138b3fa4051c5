package gateway_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// keepUntil runs its own keeper until the condition holds, and returns the hosts that it asked
// a CA for.
func keepUntil(t *testing.T, s *store.Store, ensure func(host string) error, what string, done func() bool) (asked []string) {
	t.Helper()
	table := gateway.NewTable(s, time.Now)
	require.NoError(t, table.Refresh(t.Context()))
	var mu sync.Mutex
	k := gateway.NewKeeper(gateway.Keeper{
		Table: table, Failures: s, Covered: func(string) bool { return false }, Log: zerolog.Nop(),
		Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "test"),
		Ensure: func(_ context.Context, host string) error {
			mu.Lock()
			asked = append(asked, host)
			mu.Unlock()
			return ensure(host)
		},
	})
	stop := await.Background(t, "the keeper", k.Run)
	await.Until(t, what, done)
	stop()
	return asked
}

// TestCertificateKeeper_SharesFailures includes a new leader, which must not ask the CA again too
// soon.
func TestCertificateKeeper_SharesFailures(t *testing.T) {
	s := openStore(t)
	now := time.Now()
	serves(t, s, "a1", now, hosts.TXT, host)
	failures := func() []store.CertificateFailure {
		list, err := s.CertificateFailures(t.Context())
		require.NoError(t, err)
		return list
	}
	refused := func(string) error { return errors.New("the CA\nrefuses " + strings.Repeat("x", 1000)) }
	keepUntil(t, s, refused, "the failure is recorded", func() bool { return len(failures()) == 1 })
	f := failures()[0]
	assert.Equal(t, host, f.Host)
	assert.Equal(t, 1, f.Failures)
	assert.True(t, f.NextAt.After(now))
	assert.LessOrEqual(t, len(f.Reason), 303)
	assert.NotContains(t, f.Reason, "\n")

	f.NextAt = now.Add(time.Hour)
	require.NoError(t, s.PutCertificateFailure(t.Context(), f))
	const other = "other.example.org"
	serves(t, s, "a1", now, hosts.TXT, other)
	asked := keepUntil(t, s, refused, "another host's failure is recorded", func() bool { return len(failures()) == 2 })
	assert.Equal(t, []string{other}, asked, "the next attempt of the first host is not due")

	f.NextAt = now.Add(-time.Second)
	require.NoError(t, s.PutCertificateFailure(t.Context(), f))
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.DeleteClaim(t.Context(), "a1", other) }))
	asked = keepUntil(t, s, func(string) error { return nil }, "nothing is said to fail", func() bool { return len(failures()) == 0 })
	assert.Equal(t, []string{host}, asked, "the other host is no longer served")
}
