package agent_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestAlert_ReachesControlPlane sends an alert as Alertmanager does, and finds it as an event that
// waits for the broker. The port is open while the token's file exists.
func TestAlert_ReachesControlPlane(t *testing.T) {
	address, file := freeport.Address(t), filepath.Join(t.TempDir(), "token")
	p := planetest.Start(t)
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) { c.MetricsAddress, c.AlertsTokenFile, c.MetricsOnDemand = address, file, true })
	id := p.AwaitOnline(t, time.Time{})
	assert.False(t, listens(t, address), "there is no token yet")
	require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o600))
	await.Until(t, "the port opens", func() bool { return listens(t, address) })
	post := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/alerts", strings.NewReader(
			`{"version":"4","alerts":[{"status":"firing","labels":{"alertname":"PipeOpsAppFailed","severity":"critical","namespace":"shop","app":"web"},
			"annotations":{"summary":"shop/web does not serve"},"startsAt":"2026-01-02T12:00:00Z","fingerprint":"7df1dc9aa9e0c1b8"}]}`))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer s3cret")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	await.Until(t, "the alert is taken", func() bool { return post() == http.StatusNoContent })
	assert.Equal(t, http.StatusNoContent, post(), "the same again")

	data := datadir.Data{Dir: p.Config.DataDir, Database: p.Config.Database}
	s, err := data.OpenStore(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	waiting, err := s.Outbox(t.Context(), 1000)
	require.NoError(t, err)
	var alerts []announce.AlertEvent
	for _, w := range waiting {
		if a, err := w.Event.Alert(); err == nil {
			assert.Equal(t, id, w.Event.AgentID)
			assert.Equal(t, announce.AlertFiring, w.Event.Type)
			alerts = append(alerts, a)
		}
	}
	started := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	assert.Equal(t, []announce.AlertEvent{{
		Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "shop/web does not serve", StartedAt: started,
	}}, alerts)
	text := answerOf(t, address, "/metrics")
	assert.Contains(t, text, "\npipeops_agent_alerts_total{result=\"sent\"} 1\n")
	assert.Contains(t, text, "\npipeops_agent_alerts_total{result=\"known\"} 1\n")

	require.NoError(t, os.Remove(file))
	await.Until(t, "the port closes", func() bool { return !listens(t, address) })
}

func listens(t *testing.T, address string) bool {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	return assert.NoError(t, conn.Close())
}
