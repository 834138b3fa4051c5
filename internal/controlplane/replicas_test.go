package controlplane

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// group is several control planes on one database.
type group struct {
	t        *testing.T
	database *postgres.Database
	key      ca.Key
}

// member is one of them, which can be killed.
type member struct {
	*plane
	cable *faultproxy.Proxy // to the database
	kill  func()
}

// newGroup is on PostgreSQL: SQLite has one control plane.
func newGroup(t *testing.T) *group {
	t.Helper()
	return &group{t: t, database: databases.Database(t), key: ca.NewKey()}
}

func (f *group) config(at string, change ...func(*Config)) Config {
	u, err := url.Parse(f.database.URL())
	require.NoError(f.t, err)
	if at != "" {
		u.Host = at
	}
	cfg := Config{
		DataDir: f.t.TempDir(), Database: store.Postgres{URL: u.String(), Log: zerolog.Nop()}, CAKey: f.key,
		APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0",
		OfflineGrace: 200 * time.Millisecond, StartGrace: time.Second, Log: zerolog.Nop(), Now: time.Now,
	}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// lenient is for tests in which no agent goes offline, however busy the machine is.
func lenient(c *Config) { c.OfflineGrace, c.StartGrace = time.Hour, time.Hour }

// waiting is for tests in which one agent comes back in time, and another does not come.
func waiting(c *Config) { c.OfflineGrace, c.StartGrace = 10*time.Second, 10*time.Second }

// data is what a command is given.
func (f *group) data(change ...func(*Config)) datadir.Data {
	cfg := f.config("", change...)
	return cfg.data()
}

func (f *group) start(change ...func(*Config)) *member {
	f.t.Helper()
	u, err := url.Parse(f.database.URL())
	require.NoError(f.t, err)
	cable := faultproxy.New(f.t, u.Host)
	cfg := f.config(cable.Addr(), change...)
	m := &member{cable: cable, plane: &plane{t: f.t, clock: &clock{}}}
	m.ControlPlane, err = New(f.t.Context(), cfg)
	require.NoError(f.t, err)
	m.admin, err = administration.Open(f.t.Context(), f.data(change...), time.Now)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	end := sync.OnceValue(func() error {
		cancel()
		return await.Receive(f.t, done, "the end of Run")
	})
	var killed atomic.Bool
	m.stop = func() { assert.NoError(f.t, end()) }
	m.kill = func() { // what it still wants to say, nobody hears
		killed.Store(true)
		cable.Set(faultproxy.Condition{Cut: true})
		_ = end()
	}
	f.t.Cleanup(func() {
		if !killed.Load() {
			m.stop()
		}
		assert.NoError(f.t, m.admin.Close())
	})
	return m
}

// at is the same agent as it speaks with another control plane.
func (c *cluster) at(m *member) *cluster {
	c.t.Helper()
	other := m.cluster(c.name)
	id := c.id
	id.Tunnel = peers.Endpoint(m.cfg.AdvertiseTunnel)
	other.adopt(id, c.key)
	return other
}

// events counts what was announced of an agent.
func (m *member) events(agentID string) map[announce.Type]int {
	counts := map[announce.Type]int{}
	for _, e := range m.queued() {
		if e.AgentID == agentID {
			counts[e.Type]++
		}
	}
	return counts
}

// through are a Runner's credentials for an edge.
func through(c credentials.Credentials, m *member) credentials.Credentials {
	c.Edge = m.Addrs().Edge.String()
	return c
}

func (m *member) leads() bool { return m.leader.Leads() }

// TestReplicas_ServeAnyAgent: an agent registers at one, its heartbeats come to another, its tunnel
// is at a third, and Runners reach it over each.
func TestReplicas_ServeAnyAgent(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	a, b, c := f.start(lenient), f.start(lenient), f.start(lenient)
	agent := a.registered("shop")
	for range 3 {
		require.NoError(t, agent.at(b).beat())
		require.NoError(t, agent.beat())
	}
	s := agent.at(c).serve()
	assert.Len(t, s.heard().Tunnels, peers.TunnelsEach, "the agent gets the addresses of two control planes")
	for _, m := range []*member{a, b, c} {
		await.Until(t, "the agent is online", func() bool { return m.state(agent.id.AgentID) == announce.StateOnline })
	}
	credentials := a.issue("ci", "")
	for _, m := range []*member{a, b, c} {
		client := s.visit(through(credentials, m))
		_, err := client.Cluster().Get(t.Context())
		require.NoError(t, err)
	}
	await.Until(t, "Runners are told of all edges", func() bool {
		stored, err := b.store.Agent(t.Context(), agent.id.AgentID)
		require.NoError(t, err)
		return len(b.directory.Announced(stored).Endpoints) == 3
	})
	counts := b.events(agent.id.AgentID)
	assert.Equal(t, []int{1, 1, 0}, []int{counts[announce.AgentRegistered], counts[announce.AgentOnline], counts[announce.AgentOffline]})

	t.Run("a revoked Runner is cut off wherever the tunnel is", func(t *testing.T) {
		ended := s.follow(s.visit(through(a.issue("gone", ""), b)))
		require.NoError(t, a.admin.Runners.Revoke(t.Context(), "gone"))
		requireProblem(t, await.Receive(t, ended, "the end of the stream"), client.CodeRefused)
	})
	t.Run("a revoked agent is disconnected wherever it is", func(t *testing.T) {
		_, err := b.admin.Agents.Revoke(t.Context(), agent.id.AgentID)
		require.NoError(t, err)
		await.Until(t, "it is disconnected", func() bool { return !c.tunnels.own.Connected(agent.id.AgentID) })
	})
}

// TestEdge_WithoutDatabase: the edge remembers where the agents are that Runners have reached
// before.
func TestEdge_WithoutDatabase(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	a, b := f.start(), f.start()
	agent := a.registered("shop")
	s := agent.at(a).serve()
	client := s.visit(through(a.issue("ci", ""), b))
	await.Until(t, "it is known where the agent is", func() bool {
		_, err := client.Cluster().Get(t.Context())
		return err == nil
	})
	b.cable.Set(faultproxy.Condition{Cut: true})
	again := s.visit(through(a.issue("other", ""), b))
	_, err := again.Cluster().Get(t.Context())
	require.NoError(t, err)
	b.kill()
}

// TestReplicas_SurviveDeath: the control plane that dies leads, and has the agent's tunnel.
func TestReplicas_SurviveDeath(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	first := f.start(waiting)
	await.Until(t, "it leads", first.leads)
	second, third := f.start(waiting), f.start(waiting)
	agent, lost := second.registered("shop"), second.registered("lost")
	agent.at(first).serve()
	lost.at(first).serve()
	for _, id := range []string{agent.id.AgentID, lost.id.AgentID} {
		await.Until(t, "it is online", func() bool { return second.state(id) == announce.StateOnline })
	}
	credentials := second.issue("ci", "")
	await.Until(t, "each knows of the others", func() bool {
		return first.health.readiness(t.Context()).Checks["controlPlanes"] == "ok: 3 serve the database, this one leads"
	})

	first.kill()
	back := agent.at(third).serve() // agents come to another by themselves
	client := back.visit(through(credentials, second))
	await.Until(t, "forwarded commands work again", func() bool {
		_, err := client.Cluster().Get(t.Context())
		return err == nil
	})
	await.Until(t, "another leads", func() bool { return second.leads() || third.leads() })
	assert.False(t, second.leads() && third.leads())

	await.Until(t, "the agent that does not come back is offline", func() bool {
		return second.state(lost.id.AgentID) == announce.StateOffline
	})
	lost.at(second).serve()
	await.Until(t, "and is online again", func() bool { return third.state(lost.id.AgentID) == announce.StateOnline })
	assert.Equal(t, 1, second.events(agent.id.AgentID)[announce.AgentOnline], "nobody noticed")
	assert.Zero(t, second.events(agent.id.AgentID)[announce.AgentOffline])
	assert.Equal(t, 2, second.events(lost.id.AgentID)[announce.AgentOnline])
	assert.Equal(t, 1, second.events(lost.id.AgentID)[announce.AgentOffline])
}

// TestReplicas_OfflineOnce: the agent's tunnel is up at one control plane, and its heartbeats came
// to another. It is online once when they come again.
func TestReplicas_OfflineOnce(t *testing.T) {
	t.Parallel()
	f, still := newGroup(t), newStillClock()
	often := func(c *Config) { c.HeartbeatInterval, c.Now = time.Second, still.now }
	a, b := f.start(often), f.start(often)
	agent := a.registered("shop")
	agent.at(a).serve()
	await.Until(t, "it is online", func() bool { return b.state(agent.id.AgentID) == announce.StateOnline })
	// Three heartbeats may be missing, and the last one may not be written yet.
	still.forward((liveness.MissedBeats + 1) * time.Second)
	due, err := (&liveness.Shared{Liveness: a.liveness}).Due(t.Context())
	require.NoError(t, err)
	require.Empty(t, due, "its lease has not ended")
	still.forward(time.Millisecond)
	await.Until(t, "its lease ends", func() bool { return b.state(agent.id.AgentID) == announce.StateOffline })
	elsewhere := agent.at(b)
	await.Until(t, "it is heard again", func() bool {
		require.NoError(t, elsewhere.beat())
		return a.state(agent.id.AgentID) == announce.StateOnline
	})
	counts := a.events(agent.id.AgentID)
	assert.Equal(t, []int{2, 1}, []int{counts[announce.AgentOnline], counts[announce.AgentOffline]})
}

// stillClock stands still unless it is moved.
type stillClock struct {
	start time.Time
	clock
}

func newStillClock() *stillClock { return &stillClock{start: time.Now()} }

func (c *stillClock) now() time.Time { return c.start.Add(time.Duration(c.offset.Load())) }

// TestReplicas_FollowRotation: control planes go on trusting each other.
func TestReplicas_FollowRotation(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	a, b := f.start(), f.start()
	agent := a.registered("shop")
	s := agent.at(b).serve()
	credentials := a.issue("ci", "")
	reached := func() {
		t.Helper()
		_, err := s.visit(through(credentials, a)).Cluster().Get(t.Context())
		require.NoError(t, err)
	}
	reached()
	for _, step := range []struct {
		step  ca.Step
		stage ca.Stage
	}{{ca.Start, ca.Introduced}, {ca.Sign, ca.Signing}, {ca.Abort, ca.Introduced}} {
		before := s.heard().CABundleHash
		_, changed, err := b.admin.CA.Rotate(t.Context(), step.step, administration.RotateOptions{Force: true})
		require.NoError(t, err)
		require.True(t, changed)
		for _, m := range []*member{a, b} {
			await.Until(t, "each follows", func() bool { return m.ca.Stage() == step.stage })
		}
		if step.step == ca.Start {
			await.Until(t, "the agent hears of it at once", func() bool { return s.heard().CABundleHash != before })
		}
		reached()
	}
	assert.Equal(t, a.ca.Bundle(), b.ca.Bundle())
	wrong := f.config("")
	wrong.CAKey = ca.NewKey()
	_, err := New(t.Context(), wrong)
	require.ErrorContains(t, err, "--ca-key-file")
}

// TestCA_MovesIntoDatabase: a control plane that had its CA in its directory is started with a key.
// One that does not have it must not make another.
func TestCA_MovesIntoDatabase(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	alone := f.config("")
	alone.CAKey = ca.Key{}
	p, err := New(t.Context(), alone)
	require.NoError(t, err)
	was := controlapi.Fingerprint(p.ca.Certificate())
	shared := f.config("")
	_, err = New(t.Context(), shared)
	require.ErrorIs(t, err, store.ErrServed, "one that is alone stays alone")
	require.NoError(t, p.Close())

	_, err = New(t.Context(), shared)
	require.ErrorContains(t, err, "start the control plane whose data directory has its ca.pem first")
	shared.DataDir = alone.DataDir
	_, err = administration.Open(t.Context(), shared.data(), nil)
	require.ErrorContains(t, err, "with --ca-key-file once")
	p, err = New(t.Context(), shared)
	require.NoError(t, err)
	assert.Equal(t, was, controlapi.Fingerprint(p.ca.Certificate()))
	assert.NoFileExists(t, alone.DataDir+"/ca.pem")
	assert.FileExists(t, alone.DataDir+"/ca.pem.moved")
	other := f.start()
	assert.Equal(t, was, controlapi.Fingerprint(other.ca.Certificate()))
	require.NoError(t, p.Close())
}

// TestReplicaList_All: any control plane lists all, with their own checks or why they do not
// answer.
func TestReplicaList_All(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	lost := f.start(lenient, func(c *Config) { c.AdvertisePeer = "127.0.0.1:1" })
	b, a := f.start(lenient), f.start(lenient) // credentials have the address of the last one
	a.readyWhen("one of three", func(r readiness) bool {
		return r.Ready && r.Checks["controlPlanes"] == "ok: "+a.peers.Standing(a.leads()) && len(a.replicas(t.Context())) == 3
	})
	b.readyWhen("ready", func(r readiness) bool { return r.Ready })
	b.serving.Store(false)
	defer b.serving.Store(true)
	list, err := operatorapi.ListReplicas.Do(t.Context(), a.as(a.operator("vic", administration.RoleViewer)), struct{}{})
	require.NoError(t, err)
	require.Len(t, list.Items, 3)
	byEdge := map[string]peerlink.Replica{}
	answer := 0
	for _, r := range list.Items {
		byEdge[r.Edge] = r
		if r.Answers {
			answer++
		}
	}
	assert.Equal(t, 1, answer)
	assert.True(t, byEdge[a.cfg.AdvertiseEdge].Answers)
	assert.Equal(t, peerlink.Ready, byEdge[a.cfg.AdvertiseEdge].State)
	other := byEdge[b.cfg.AdvertiseEdge]
	assert.Equal(t, peerlink.NotReady, other.State)
	assert.Contains(t, other.Wrong(), "edge: not serving")
	assert.Equal(t, hostname(), other.Name)
	away := byEdge[lost.cfg.AdvertiseEdge]
	assert.Equal(t, peerlink.Unreachable, away.State)
	assert.Contains(t, away.Reason, "127.0.0.1:1")
	assert.Equal(t, away.ID, away.Title())

	_, body := a.signedIn(a.operator("eve", administration.RoleViewer)).get("/console/replicas")
	assert.Contains(t, body, away.ID+" is unreachable")
	assert.Contains(t, body, "--advertise-peer")
	assert.Contains(t, body, "Not serving")
}
