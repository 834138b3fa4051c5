package controlplane

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// TestHeartbeat_BatchedOnSQLite counts what ten heartbeats of each of a hundred agents cost the
// database: one row each, in one transaction, and nothing before it.
func TestHeartbeat_BatchedOnSQLite(t *testing.T) {
	const agents, beats = 100, 10
	dir := t.TempDir()
	c, err := New(t.Context(), Config{DataDir: dir, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0", Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	fleet := storetest.Fill(t, c.store, agents)
	db := storetest.SQLite(t, filepath.Join(dir, datadir.FileDatabase))
	written := func() int64 {
		wal, err := os.Stat(filepath.Join(dir, datadir.FileDatabase+"-wal"))
		require.NoError(t, err)
		return wal.Size()
	}
	beat := func() {
		for _, g := range fleet {
			_, err := c.fleet.Heartbeat(t.Context(), g.ID, controlapi.Heartbeat{Capacity: controlapi.Capacity{RunningPods: 3}})
			require.NoError(t, err)
		}
	}
	beat() // the first after a start is compared with what is stored
	require.NoError(t, c.liveness.Flush(t.Context()))
	for _, statement := range []string{
		`CREATE TABLE counted (what TEXT)`,
		`CREATE TRIGGER count_agents AFTER UPDATE ON agents BEGIN INSERT INTO counted VALUES ('agent'); END`,
		`CREATE TRIGGER count_outbox AFTER INSERT ON outbox BEGIN INSERT INTO counted VALUES ('event'); END`,
		`PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	rows := func(what string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM counted WHERE what = ?`, what).Scan(&n))
		return n
	}
	for range beats {
		beat()
	}
	assert.Zero(t, written(), "a heartbeat alone writes nothing")
	require.NoError(t, c.liveness.Flush(t.Context()))
	assert.Equal(t, agents, rows("agent"))
	assert.Zero(t, rows("event"))
	after := written()
	assert.Less(t, after, int64(agents*1024), "the counting included")
	require.NoError(t, c.liveness.Flush(t.Context()))
	assert.Equal(t, after, written(), "what is written is not written again")
}

// TestHeartbeat_Standby: two versions of an agent run side by side, as in the middle of an update.
func TestHeartbeat_Standby(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	require.NoError(t, c.beat())
	before := typesOf(p.queued())
	standby := controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "2.0", RunnerAPIVersion: "v1", TunnelPhase: "connected", Standby: true}
	asked := p.clock.now()
	for range 2 {
		_, err := c.client.Heartbeat(t.Context(), standby)
		require.NoError(t, err)
	}
	assert.Equal(t, before, typesOf(p.queued()), "it is not news")
	require.NoError(t, p.liveness.Flush(t.Context()))
	a, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.Equal(t, "1.0", a.AgentVersion)
	assert.Equal(t, 1, a.Capacity.Nodes)
	assert.False(t, a.LastSeen.Before(asked.Truncate(time.Microsecond)), "but it lives")

	standby.Standby = false // it leads now
	_, err = c.client.Heartbeat(t.Context(), standby)
	require.NoError(t, err)
	assert.Equal(t, append(before, announce.AgentUpdated), typesOf(p.queued()))
}

func TestHeartbeat_WritesChanges(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	require.NoError(t, c.beat())
	used, asked := int64(500), p.clock.now()
	beat := c.heartbeat()
	beat.Capacity.UsedCPUMillis = &used
	for range 5 {
		_, err := c.client.Heartbeat(t.Context(), beat)
		require.NoError(t, err)
	}
	p.issue("r", "")
	list, err := p.view.Snapshot(t.Context(), "r")
	require.NoError(t, err)
	assert.Equal(t, &used, list[0].Capacity.UsedCPUMillis, "the snapshot has it before it is written")

	beat.Capacity.Nodes = 2
	_, err = c.client.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated, announce.AgentUpdated}, typesOf(p.queued()))

	require.NoError(t, p.liveness.Flush(t.Context()))
	after, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.False(t, after.LastSeen.Before(asked.Truncate(time.Microsecond)))
	assert.Equal(t, &used, after.Capacity.UsedCPUMillis)
}

// TestHeartbeat_KeepsChecks: checks are kept with the time of each first report, and shown to
// operators alone.
func TestHeartbeat_KeepsChecks(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	beat := func(checks *controlapi.Checks) *store.Checks {
		_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "v1.0.0", Checks: checks})
		require.NoError(t, err)
		found, err := p.admin.Agents.Get(t.Context(), "shop", 0)
		require.NoError(t, err)
		return found.Checks
	}
	found := func(list ...controlapi.Finding) *controlapi.Checks { return &controlapi.Checks{Findings: list} }
	b := p.signedIn(p.operator("vic", administration.RoleViewer))
	page := func() string {
		status, body := b.get("/console/agents/shop")
		require.Equal(t, http.StatusOK, status, body)
		return body
	}
	assert.Nil(t, beat(nil))
	assert.Contains(t, page(), "No check has been reported")

	memory := controlapi.Finding{Check: "memory", Status: "failed", Detail: "40 MiB are\x1b[2J available", Fix: "stop something else"}
	queued := len(p.queued())
	first := beat(found(memory)).Findings
	require.Len(t, first, 1)
	assert.NotContains(t, first[0].Detail, "\x1b")
	assert.Len(t, p.queued(), queued, "Runners are told nothing of it")
	body := page()
	for _, text := range []string{"Check failed: memory", "40 MiB are", "stop something else"} {
		assert.Contains(t, body, text)
	}
	_, fleet := b.get("/console/?show=wrong")
	assert.Contains(t, fleet, "Check failed: memory", "a failed check needs attention")

	p.clock.forward(time.Minute)
	memory.Detail = "41 MiB are\x1b[2J available"
	assert.Equal(t, first, beat(found(memory)).Findings, "a figure is not worth a write")
	assert.Equal(t, first, beat(nil).Findings, "a new leader has not looked yet")
	paused := controlapi.Finding{Check: "policy", Status: "warning", Detail: "paused"}
	both := beat(found(memory, paused)).Findings
	require.Len(t, both, 2)
	assert.Equal(t, first[0].Since, both[0].Since)
	assert.True(t, both[1].Since.After(both[0].Since))

	away := controlapi.Finding{Check: "kubernetes", Status: "failed", Detail: "the Kubernetes API does not answer since 2026-11-29T00:00:00Z"}
	standby := func() *store.Checks {
		_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Standby: true, Checks: found(away)})
		require.NoError(t, err)
		found, err := p.admin.Agents.Get(t.Context(), "shop", 0)
		require.NoError(t, err)
		return found.Checks
	}
	assert.Equal(t, both, standby().Findings, "a replica leads, and reaches it")
	p.clock.forward(time.Minute)
	lost := standby().Findings
	require.Len(t, lost, 3)
	assert.Equal(t, []string{"kubernetes", "memory", "policy"}, []string{lost[0].Check, lost[1].Check, lost[2].Check})
	assert.Equal(t, both, lost[1:])
	listed, err := p.admin.Agents.Find(t.Context(), store.AgentQuery{})
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{listed.Agents[0].ID: {"kubernetes", "memory"}}, listed.FailedChecks)

	assert.Empty(t, beat(found()).Findings)
	assert.Contains(t, page(), "find nothing wrong")

	_, err = shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Checks: found(make([]controlapi.Finding, controlapi.MaxFindings+1)...)})
	require.Error(t, err, "their number is bounded")
	_, err = shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Checks: found(controlapi.Finding{Check: "memory", Status: "ok", Detail: "fine"})})
	require.Error(t, err, "what is well is not reported")
}

// TestHeartbeat_KeepsComponents: components are kept and shown without control characters.
func TestHeartbeat_KeepsComponents(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	beat := func(all ...controlapi.Component) announce.Agent {
		_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "v1.0.0", Components: all})
		require.NoError(t, err)
		agents, err := p.admin.Agents.List(t.Context())
		require.NoError(t, err)
		require.Len(t, agents, 1)
		return agents[0]
	}
	bad := controlapi.Component{Name: "grafana", Version: "12.11.1", Cause: "ImageNotFound", Message: "no such\x1b[2J image"}
	got := beat(controlapi.Component{Name: "vpa", Version: "0.11.0", Ready: true}, bad).Components
	require.Len(t, got, 2)
	assert.Equal(t, "vpa 0.11.0: ready", got[0].String())
	assert.Equal(t, "ImageNotFound", got[1].Cause)
	assert.NotContains(t, got[1].Message, "\x1b")
	assert.Empty(t, beat().Components, "those that are gone")

	_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Components: make([]controlapi.Component, controlapi.MaxComponents+1)})
	require.Error(t, err, "their number is bounded")
}

// TestHeartbeat_RevocationLost has an agent that knows of revocations, which a restore lost.
func TestHeartbeat_RevocationLost(t *testing.T) {
	var runners, agents atomic.Int64
	p := start(t, func(c *Config) {
		c.Log = zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
			switch {
			case strings.Contains(message, "`pipeops-controlplane runner revoke ci`"):
				runners.Add(1)
			case strings.Contains(message, "`pipeops-controlplane agent revoke stolen`"):
				agents.Add(1)
			}
		}))
	})
	shop, stolen := p.registered("shop"), p.registered("stolen")
	p.issue("ci", "")
	p.issue("ops", "")
	ci, err := p.store.Runner(t.Context(), "ci")
	require.NoError(t, err)
	beat := shop.heartbeat()
	beat.RevokedRunners = []string{ci.Serial, "ended"}
	beat.RevokedAgents = []string{controlapi.AgentPrint(stolen.id.AgentID), controlapi.AgentPrint("deleted")}
	answer, err := shop.client.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	assert.Empty(t, answer.RevokedAgents)
	for range 3 { // an agent can say so as often as it wants
		_, err = shop.client.Heartbeat(t.Context(), beat)
		require.NoError(t, err)
	}
	p.clock.forward(time.Hour)
	beat.Clock = p.clock.now()
	_, err = shop.client.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.RevokeCertificate(t.Context(), ci, p.clock.now()) }))
	_, err = p.admin.Agents.Revoke(t.Context(), "stolen")
	require.NoError(t, err)
	answer, err = shop.client.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	assert.Equal(t, beat.RevokedAgents[:1], answer.RevokedAgents)
	assert.EqualValues(t, 2, runners.Load())
	assert.EqualValues(t, 2, agents.Load())
}

func TestHeartbeat_UpdateState(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	updating(shop, controlapi.Update{State: controlapi.UpdateIdle})
	before := len(p.queued())
	failed := controlapi.Update{State: controlapi.UpdateFailed, Offer: "o", From: "v1.0.0", To: "v1.1.0", Reason: "it never registered"}
	updating(shop, failed)
	updating(shop, failed)
	events := p.queued()
	require.Len(t, events, before+1, "news are announced once")
	last, err := events[before].Agent()
	require.NoError(t, err)
	assert.Equal(t, announce.AgentUpdated, events[before].Type)
	want := &announce.AgentUpdate{State: "failed", From: "v1.0.0", To: "v1.1.0", Reason: "it never registered"}
	assert.Equal(t, want, last.Update)
	agent, err := p.admin.Agents.Get(t.Context(), "shop", 0)
	require.NoError(t, err)
	assert.Equal(t, want, agent.Agent.Update)
}
