package agent_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

// TestSelfUpdate_Rules has an agent that runs v1.5.0 be offered what
// it does not take; test/selfupdate has what it takes.
func TestSelfUpdate_Rules(t *testing.T) {
	p := planetest.Start(t)
	later := time.Now().UTC().AddDate(0, 0, 3).Format("Mon") + " 00:00-01:00"
	launch(t, agent.Options{
		Config: config.Config{
			ControlPlaneURL: p.URL(), Token: token(t, p), ClusterName: name, StateDir: t.TempDir(),
			Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
			SelfUpdate: true, UpdateWindow: later, UpdateKeys: []string{releasetest.PublicKey}, UpdateDeadline: time.Minute,
		},
		Version: "v1.5.0", Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel), Now: p.Clock.Now,
	})
	awaitState := func(state, to string) (found announce.AgentUpdate) {
		t.Helper()
		await.Until(t, "its update is "+state+" "+to, func() bool {
			agents, err := p.Agents.List(t.Context())
			require.NoError(t, err)
			if len(agents) == 1 && agents[0].Update != nil {
				found = *agents[0].Update
			}
			return found.State == state && found.To == to
		})
		return found
	}
	offer := func(version string) {
		t.Helper()
		opts := operators.ReleaseOptions{Trust: releasetest.Trust(t), URL: "https://downloads.example.com"}
		opts.Manifest, opts.Signature = releasetest.Sign(t, release.Manifest{Version: version, Commit: "abc", Files: []release.File{
			{Name: "chart.tgz", Kind: release.KindChart, SHA256: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
		}})
		_, err := p.Releases.Offer(t.Context(), opts)
		require.NoError(t, err)
	}
	awaitState("idle", "")
	offer("v1.4.9")
	assert.Contains(t, awaitState("refused", "v1.4.9").Reason, "v1.4.9 is older than v1.5.0, which runs")
	offer("v1.5.0")
	assert.Equal(t, announce.AgentUpdate{State: "done", To: "v1.5.0"}, awaitState("done", "v1.5.0"), "nothing is to be done")
	offer("v1.6.0")
	assert.Contains(t, awaitState("waiting", "v1.6.0").Reason, "for the window that opens at ")
	_, err := p.Releases.Withdraw(t.Context(), "v1.6.0")
	require.NoError(t, err)
	awaitState("done", "v1.5.0")
}
