package gateway_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func openStore(t testing.TB) *store.Store { return storetest.Open(t, nil, postgres.SQLite) }

// serves gives an agent proven hosts, and makes the agent if there is none.
func serves(t testing.TB, s *store.Store, agentID string, at time.Time, proof string, names ...string) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Agent(ctx, agentID); err != nil {
		require.NoError(t, s.InsertAgent(ctx, store.Agent{ID: agentID, Name: agentID, ClusterUID: agentID, State: "online", RegisteredAt: at}))
	}
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutRoutes(ctx, agentID, nil, store.RouteSet{Digest: "d", At: at}); err != nil {
			return err
		}
		for _, name := range names {
			if err := tx.PutClaim(ctx, store.HostClaim{AgentID: agentID, Host: name, Proof: proof, ClaimedAt: at, ProvenAt: at}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestTable_FollowsDatabase(t *testing.T) {
	s, now := openStore(t), noon
	table := gateway.NewTable(s, func() time.Time { return now })
	is := func(host, agent string) {
		t.Helper()
		h, ok := table.Lookup(host)
		assert.Equal(t, agent != "", ok, host)
		if ok {
			assert.Equal(t, agent, h.AgentID, host)
		}
	}
	refresh := func() { require.NoError(t, table.Refresh(t.Context())) }
	refresh()
	is("www.example.org", "")

	serves(t, s, "a1", now, hosts.TXT, "www.example.org", "*.example.org")
	serves(t, s, "a2", now, "", "www.example.org", "unproven.example.com")
	refresh()
	for host, agent := range map[string]string{
		"www.example.org": "a1", "WWW.Example.ORG.": "a1", "www.example.org:8443": "a1", "any.example.org": "a1",
		"deep.any.example.org": "", "example.org": "", "unproven.example.com": "", "": "", ":443": "", "[::1]:443": "",
	} {
		is(host, agent)
	}
	for host, named := range map[string]bool{
		"www.example.org": true, "WWW.Example.ORG.": true, "any.example.org": false, "*.example.org": false, "unproven.example.com": false,
	} {
		assert.Equal(t, named, table.Named(host), host)
	}
	serves(t, s, "a2", now, hosts.CNAME, "www.example.org")
	refresh()
	is("www.example.org", "a2")
	is("any.example.org", "a1")

	now = now.Add(gateway.RoutesTTL)
	is("www.example.org", "") // unheard for long
	known, _ := table.Lookup("www.example.org")
	assert.NotNil(t, known)
	unknown, _ := table.Lookup("www.example.net")
	assert.Nil(t, unknown)
	assert.Empty(t, table.Hosts())
	assert.False(t, table.Named("www.example.org"))
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.HeardRoutes(t.Context(), "a2", now) }))
	refresh()
	is("www.example.org", "a2")
	assert.Equal(t, []string{"www.example.org"}, table.Hosts())

	a, err := s.Agent(t.Context(), "a2")
	require.NoError(t, err)
	a.RevokedAt = now
	require.NoError(t, s.UpdateAgent(t.Context(), a))
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.HeardRoutes(t.Context(), "a1", now) }))
	refresh()
	is("www.example.org", "a1") // whose proof is weaker, but is one
	require.NoError(t, s.DeleteAgent(t.Context(), "a1"))
	refresh()
	is("www.example.org", "")
	assert.Zero(t, table.Len())
}

func TestTable_SkipsUnreadableAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s, err := store.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	serves(t, s, "sound", noon, hosts.CNAME, "sound.example.org")
	serves(t, s, "broken", noon, hosts.CNAME, "broken.example.org")
	_, err = storetest.SQLite(t, path).ExecContext(t.Context(), "UPDATE host_claims SET proven_at = 'never' WHERE agent_id = 'broken'")
	require.NoError(t, err)
	table := gateway.NewTable(s, func() time.Time { return noon })
	await.Until(t, "the host of the other agent is served", func() bool { // agents are read in any order
		require.Error(t, table.Refresh(t.Context()))
		_, served := table.Lookup("sound.example.org")
		return served
	})
}

// Before the routes were read, no host is known to be missing.
func TestGateway_RoutesNotRead(t *testing.T) {
	table := gateway.NewTable(openStore(t), time.Now)
	g := gateway.New(gateway.Config{
		Table: table, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, AgentName: func(string) string { return "" },
		Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "test"), Log: zerolog.Nop(),
	})
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://www.example.org/", http.NoBody))
		assert.Equal(t, want, w.Code)
		assert.Equal(t, want == http.StatusServiceUnavailable, w.Header().Get("Retry-After") != "")
		require.NoError(t, table.Refresh(t.Context()))
	}
}
