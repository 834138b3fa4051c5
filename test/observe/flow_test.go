package observe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	received "github.com/pipeops/pipeops-vm-agent/internal/alerts"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestEvents_AppFails has a real Prometheus with our jobs and rules, and a real
// Alertmanager with our receiver, tell the agent's handler of an App that fails and recovers. An
// App that exposes the agent's metrics raises no alert.
func TestEvents_AppFails(t *testing.T) {
	suite.Release(t, "alerts through a real Prometheus and Alertmanager")
	const failing = `pipeops_agent_app_failing{namespace=%q,app="web",phase="Failed",cause="ImageNotFound"} 1` + "\n"
	var well atomic.Bool
	agents := metricsOf(t, func() string {
		if well.Load() {
			return "pipeops_agent_tunnel_connected 1\n"
		}
		return "pipeops_agent_tunnel_connected 1\n" + fmt.Sprintf(failing, "shop")
	})
	scraped := make(chan struct{}, 1)
	forged := metricsOf(t, func() string {
		select {
		case scraped <- struct{}{}:
		default:
		}
		return fmt.Sprintf(failing, "bank")
	})

	events := make(chan received.Alert, 100)
	webhook, token := agentsHandler(t, events)
	alertmanager := monitoringtest.StartAlertmanager(t, webhook, token)
	monitoringtest.StartPrometheus(t, alertmanager, map[string]monitoringtest.Target{
		"pipeops-agent": {Address: agents, Labels: map[string]string{
			"__meta_kubernetes_pod_label_app_kubernetes_io_name": "pipeops-agent", "__meta_kubernetes_pod_container_port_name": "metrics",
		}},
		"pods": {Address: forged, Labels: map[string]string{
			"__meta_kubernetes_pod_annotation_prometheus_io_scrape": "true", "__meta_kubernetes_namespace": "evil", "__meta_kubernetes_pod_label_pipeops_io_app": "evil",
		}},
	})

	await.Receive(t, scraped, "the forged metrics are scraped")
	first := await.Receive(t, events, "the alert fires")
	assert.Equal(t, "PipeOpsAppFailed", first.Name)
	assert.Equal(t, received.Firing, first.Status)
	assert.Equal(t, "critical", first.Severity)
	assert.Equal(t, []string{"shop", "web"}, []string{first.Namespace, first.App})
	assert.Equal(t, "The App shop/web does not serve: ImageNotFound", first.Summary)
	well.Store(true)
	second := await.Receive(t, events, "the alert is resolved")
	assert.Equal(t, received.Resolved, second.Status)
	assert.Equal(t, first.Fingerprint, second.Fingerprint)
	assert.Equal(t, first.StartedAt, second.StartedAt)
	assert.False(t, second.At.Before(first.At))
}

// metricsOf serves metrics, and returns the address.
func metricsOf(t *testing.T, text func() string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text()) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// agentsHandler serves the agent's handler of alerts, and returns what Alertmanager needs.
func agentsHandler(t *testing.T, events chan<- received.Alert) (webhook, token string) {
	t.Helper()
	token = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("s3cret"), 0o600))
	s := httptest.NewServer(received.New(received.Config{
		TokenFile: token, Now: time.Now, Log: zerolog.Nop(), Count: func(string, int) {},
		Send: func(_ context.Context, list []received.Alert) error {
			for _, a := range list {
				events <- a
			}
			return nil
		},
	}))
	t.Cleanup(s.Close)
	return s.URL + received.Path, token
}
