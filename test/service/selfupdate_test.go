package service

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

// updates has the agent offered a release, which it takes as the same process of its
// service manager, and which is what that one's next start comes to.
func (g *guided) updates(t *testing.T, id string, pid func() string, restart string) {
	t.Helper()
	site := t.TempDir()
	url, ca := releasetest.Site(t, site)
	roots, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.NoError(t, g.WriteFile("/etc/pipeops/downloads.pem", roots, 0o644))
	since := time.Now()
	g.mustWith(t, "PIPEOPS_SELF_UPDATE=true\nPIPEOPS_UPDATE_KEYS="+releasetest.PublicKey+"\nPIPEOPS_CA_FILE=/etc/pipeops/downloads.pem\n",
		"cat >>/etc/pipeops/agent.env\n"+restart)
	assert.Equal(t, id, g.plane.AwaitOnline(t, since))
	before := pid()

	next, err := programs.Agent.At("v1.1.0").Build(t.Context())
	require.NoError(t, err)
	offer := administration.ReleaseOptions{Trust: releasetest.Trust(t), URL: url + "/v1.1.0"}
	offer.Manifest, offer.Signature = releasetest.Publish(t, site, "v1.1.0", next)
	_, err = g.plane.Releases.Offer(t.Context(), offer)
	require.NoError(t, err)
	g.awaitUpdated(t, "v1.1.0", since)
	assert.Equal(t, before, pid())

	g.must(t, restart)
	// From now on: the process that was stopped may have sent a heartbeat while it was.
	g.awaitUpdated(t, "v1.1.0", time.Now())
	assert.Contains(t, g.must(t, "readlink /proc/"+pid()+"/exe"), "/pipeops-agent/update/v1.1.0/pipeops-agent")
}

// awaitUpdated waits until the agent was seen after that time as that version, done
// with its update.
func (g *guided) awaitUpdated(t *testing.T, version string, after time.Time) {
	t.Helper()
	g.await(t, "the agent is "+version, func(ctx context.Context) error {
		agents, err := g.plane.Agents.List(ctx)
		if err != nil || len(agents) != 1 {
			return fmt.Errorf("%d agents: %w", len(agents), err)
		}
		a := agents[0]
		if a.State != announce.StateOnline || a.LastSeen.Before(after) || a.AgentVersion != version || a.Update == nil || a.Update.State != "done" {
			return fmt.Errorf("%s, %s, %+v", a.State, a.AgentVersion, a.Update)
		}
		return nil
	})
}
