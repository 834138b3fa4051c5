package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func TestHostClaims(t *testing.T) { postgres.OnEach(t, testClaimsToHosts) }

func testClaimsToHosts(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
	require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
	require.NoError(t, s.InsertAgent(ctx, agent("a2", "bakery")))
	put := func(claims ...store.HostClaim) {
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
			for _, c := range claims {
				if err := tx.PutClaim(ctx, c); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.PutRoutes(ctx, "a1", nil, store.RouteSet{At: noon}) }))
	mine := store.HostClaim{AgentID: "a1", Host: "b.example.com", ClaimedAt: noon, NextAt: noon.Add(time.Hour), Reason: "no record"}
	theirs := store.HostClaim{AgentID: "a2", Host: "b.example.com", Proof: "txt", ClaimedAt: noon.Add(time.Second), ProvenAt: noon, CheckedAt: noon, LostAt: noon}
	other := store.HostClaim{AgentID: "a2", Host: "c.example.com", ClaimedAt: noon, NextAt: noon.Add(time.Minute)}
	put(mine, theirs, other)
	mine.Proof, mine.ProvenAt, mine.Reason = "cname", noon.Add(time.Minute), ""
	put(mine)

	set, err := s.RouteSet(ctx, "a1")
	require.NoError(t, err)
	assert.EqualValues(t, 3, set.Revision, "a claim changes the revision of its agent")
	for what, list := range map[string]struct {
		got  func() ([]store.HostClaim, error)
		want []store.HostClaim
	}{
		"of an agent": {func() ([]store.HostClaim, error) { return s.ClaimsOf(ctx, "a1") }, []store.HostClaim{mine}},
		"to a host":   {func() ([]store.HostClaim, error) { return s.ClaimsTo(ctx, "b.example.com") }, []store.HostClaim{mine, theirs}},
		"all":         {func() ([]store.HostClaim, error) { return s.Claims(ctx) }, []store.HostClaim{mine, theirs, other}},
		"beside":      {func() ([]store.HostClaim, error) { return s.ClaimsBeside(ctx, "a1") }, []store.HostClaim{mine, theirs}},
		"due":         {func() ([]store.HostClaim, error) { return s.DueClaims(ctx, noon.Add(time.Minute), 10) }, []store.HostClaim{theirs, other}},
	} {
		got, err := list.got()
		require.NoError(t, err, what)
		assert.Equal(t, list.want, got, what)
	}

	var had bool
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
		return tx.PutGrant(ctx, store.HostGrant{Host: "b.example.com", AgentID: "a1", GrantedAt: noon})
	}))
	due, err := s.DueClaims(ctx, noon, 10)
	require.NoError(t, err)
	assert.Len(t, due, 2, "a grant has all claims to its host looked at")
	granted, err := s.GrantOf(ctx, "b.example.com")
	require.NoError(t, err)
	assert.Equal(t, "a1", granted)
	grants, err := s.HostGrants(ctx)
	require.NoError(t, err)
	assert.Equal(t, []store.HostGrant{{Host: "b.example.com", AgentID: "a1", GrantedAt: noon}}, grants)
	for _, want := range []bool{true, false} {
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) (err error) {
			had, err = tx.DeleteGrant(ctx, "b.example.com")
			return err
		}))
		assert.Equal(t, want, had)
	}
	granted, err = s.GrantOf(ctx, "b.example.com")
	require.NoError(t, err)
	assert.Empty(t, granted)

	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.DeleteClaim(ctx, "a2", "c.example.com") }))
	revoked := agent("a2", "bakery")
	revoked.RevokedAt = noon
	require.NoError(t, s.UpdateAgent(ctx, revoked))
	all, err := s.Claims(ctx)
	require.NoError(t, err)
	require.Len(t, all, 1, "a revoked agent's do not count")
	require.NoError(t, s.DeleteAgent(ctx, "a1"))
	all, err = s.ClaimsOf(ctx, "a1")
	require.NoError(t, err)
	assert.Empty(t, all)
	names, err := s.AgentNames(ctx)
	require.NoError(t, err)
	assert.Empty(t, names)
}

func TestGatewayFiles(t *testing.T) { postgres.OnEach(t, testGatewayFiles) }

func testGatewayFiles(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
	for _, name := range []string{"certificates/x/x.crt", "certificates/x/x.key", "certificates/xy/a", "acme/account"} {
		require.NoError(t, s.PutGatewayFile(ctx, store.GatewayFile{Name: name, Sealed: "old", Size: 3, ModifiedAt: noon}))
	}
	f := store.GatewayFile{Name: "certificates/x/x.crt", Sealed: "new", Size: 4, ModifiedAt: noon.Add(time.Second)}
	require.NoError(t, s.PutGatewayFile(ctx, f))
	got, err := s.GatewayFile(ctx, f.Name)
	require.NoError(t, err)
	assert.Equal(t, f, got)
	names, err := s.GatewayFiles(ctx, "certificates/x/")
	require.NoError(t, err)
	assert.Equal(t, []string{"certificates/x/x.crt", "certificates/x/x.key"}, names)
	require.NoError(t, s.DeleteGatewayFiles(ctx, "certificates/x"))
	names, err = s.GatewayFiles(ctx, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"acme/account", "certificates/xy/a"}, names)
	_, err = s.GatewayFile(ctx, f.Name)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestGatewayLocks(t *testing.T) { postgres.OnEach(t, testGatewayLocks) }

func testGatewayLocks(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
	lock := func(holder string, lease time.Duration) bool {
		has, err := s.LockGateway(ctx, "l", holder, lease)
		require.NoError(t, err)
		return has
	}
	assert.True(t, lock("one", time.Hour))
	assert.False(t, lock("two", time.Hour))
	assert.True(t, lock("one", time.Hour), "it is renewed")
	require.NoError(t, s.UnlockGateway(ctx, "l", "two"))
	assert.False(t, lock("two", time.Hour), "only the holder gives it back")
	require.NoError(t, s.UnlockGateway(ctx, "l", "one"))
	assert.True(t, lock("two", 0))
	assert.True(t, lock("one", time.Hour), "a lease that has ended is free")
}
