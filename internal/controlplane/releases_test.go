package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func releaseOptions(t *testing.T, version string, change ...func(*administration.ReleaseOptions)) administration.ReleaseOptions {
	t.Helper()
	opts := administration.ReleaseOptions{Trust: releasetest.Trust(t), URL: "https://downloads.example.com/" + version}
	opts.Manifest, opts.Signature = releasetest.Sign(t, release.Manifest{Version: version, Commit: "abc", Files: []release.File{
		{Name: "pipeops-agent", SHA256: strings.Repeat("a", 64), Size: 1, Kind: release.KindAgent, OS: "linux", Arch: "amd64"},
	}})
	for _, c := range change {
		c(&opts)
	}
	return opts
}

// updating is an agent that updates itself.
func updating(c *cluster, u controlapi.Update) *controlapi.Offer {
	c.t.Helper()
	answer, err := c.client.Heartbeat(c.t.Context(), controlapi.Heartbeat{Clock: c.p.clock.now(), AgentVersion: "v1.0.0", Update: &u})
	require.NoError(c.t, err)
	return answer.Offer
}

func TestReleaseOffer_Targets(t *testing.T) {
	p := start(t)
	shop, bank := p.registered("shop"), p.registered("bank")
	idle := controlapi.Update{State: controlapi.UpdateIdle}
	assert.Nil(t, updating(shop, idle), "nothing is offered")

	early, err := p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v1.2.0", func(o *administration.ReleaseOptions) { o.Agents = []string{"shop"} }))
	require.NoError(t, err)
	all, err := p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v1.1.0"))
	require.NoError(t, err)
	_, err = p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v9.0.0", func(o *administration.ReleaseOptions) { o.Labels = map[string]string{"ring": "none"} }))
	require.NoError(t, err)

	got := updating(shop, idle)
	require.NotNil(t, got)
	assert.Equal(t, &controlapi.Offer{ID: early.ID, Version: "v1.2.0", Manifest: early.Manifest, Signature: early.Signature, URL: "https://downloads.example.com/v1.2.0"}, got)
	assert.Equal(t, &controlapi.Offer{ID: early.ID, Version: "v1.2.0"}, updating(shop, controlapi.Update{State: controlapi.UpdateWaiting, Offer: early.ID}),
		"what it has is not sent again")
	assert.Equal(t, all.ID, updating(bank, idle).ID)

	answer, err := bank.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now()})
	require.NoError(t, err)
	assert.Nil(t, answer.Offer, "its customer has not turned it on")

	withdrawn, err := p.admin.Releases.Withdraw(t.Context(), "v1.2.0")
	require.NoError(t, err)
	assert.Len(t, withdrawn, 1)
	assert.Equal(t, all.ID, updating(shop, idle).ID)
}

func TestReleaseOffer_Expires(t *testing.T) {
	p := start(t)
	shop, idle := p.registered("shop"), controlapi.Update{State: controlapi.UpdateIdle}
	older, err := p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v1.1.0"))
	require.NoError(t, err)
	opts := releaseOptions(t, "v1.2.0")
	m, err := release.Decode(opts.Manifest)
	require.NoError(t, err)
	m.Expires = p.clock.now().Add(time.Minute)
	opts.Manifest, opts.Signature = releasetest.Sign(t, *m)
	newer, err := p.admin.Releases.Offer(t.Context(), opts)
	require.NoError(t, err)
	assert.Equal(t, newer.ID, updating(shop, idle).ID)
	p.clock.forward(time.Minute)
	assert.Equal(t, older.ID, updating(shop, idle).ID, "it has expired, and the older one has not")
	list, err := p.admin.Releases.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2, "it is listed until it is withdrawn")
	assert.Contains(t, []time.Time{list[0].ExpiresAt.UTC(), list[1].ExpiresAt.UTC()}, newer.ExpiresAt.UTC().Truncate(time.Microsecond))
}

// TestReleaseOffer_Progress counts only the agents to which the release is offered.
func TestReleaseOffer_Progress(t *testing.T) {
	p := start(t)
	early := map[string]string{"ring": "early"}
	for i, a := range []store.Agent{
		{AgentVersion: "v1.2.0", Labels: early},
		{AgentVersion: "v1.1.0", Labels: early, Update: &announce.AgentUpdate{State: "failed", To: "v1.2.0", Reason: "the new pods did not become ready"}},
		{AgentVersion: "v1.1.0", Labels: map[string]string{"ring": "late"}},
	} {
		a.ID, a.Name, a.ClusterUID, a.State, a.RegisteredAt = fmt.Sprintf("agent%02d", i), fmt.Sprintf("shop-%02d", i), fmt.Sprint("uid", i), announce.StateOnline, p.clock.now()
		require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.InsertAgent(t.Context(), a) }))
	}
	_, err := p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v1.2.0", func(o *administration.ReleaseOptions) { o.Labels = early }))
	require.NoError(t, err)
	status, body := p.signedIn(p.operator("vic", administration.RoleViewer)).get("/console/releases")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{"1 of 2 took it", "1 failed", "Where v1.2.0 failed", "/console/agents/agent01", "The new pods did not become ready"} {
		assert.Contains(t, body, text)
	}
}
