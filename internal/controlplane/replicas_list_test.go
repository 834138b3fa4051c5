package controlplane

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
)

// TestReplicaList_Single: a single control plane is listed with its checks, on SQLite too, in the
// console and by the API.
func TestReplicaList_Single(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Version, c.BrokerURLs = "v1.4.2", []string{"amqp://guest:secret@127.0.0.1:1/"}
	})
	p.readyWhen("ready and degraded", func(r readiness) bool { return r.Ready && r.Degraded })
	viewer := p.operator("vic", operators.RoleViewer)
	list, err := operatorapi.ListReplicas.Do(t.Context(), p.as(viewer), struct{}{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	own := list.Items[0]
	assert.Equal(t, hostname(), own.Name)
	assert.Equal(t, "v1.4.2", own.Version)
	assert.Equal(t, p.Advertised().Edge, own.Edge)
	assert.Equal(t, peerlink.Degraded, own.State)
	assert.True(t, own.Answers && own.Leads)
	assert.False(t, own.StartedAt.IsZero())
	require.NotEmpty(t, own.Checks)
	assert.Equal(t, "broker", own.Checks[0].Name, "what failed comes first")
	require.Len(t, own.Wrong(), 1)
	assert.Contains(t, own.Checks, peerlink.Check{Name: "database", OK: true, Text: "answers"})

	status, body := p.signedIn(viewer).get("/console/replicas")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{hostname() + ": broker", "down since", "shows you this page", "v1.4.2", "pipeops-controlplane replica list"} {
		assert.Contains(t, body, text)
	}
	assert.NotContains(t, body, "secret", "the password")
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
	list, err := operatorapi.ListReplicas.Do(t.Context(), a.as(a.operator("vic", operators.RoleViewer)), struct{}{})
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

	_, body := a.signedIn(a.operator("eve", operators.RoleViewer)).get("/console/replicas")
	assert.Contains(t, body, away.ID+" is unreachable")
	assert.Contains(t, body, "--advertise-peer")
	assert.Contains(t, body, "Not serving")
}
