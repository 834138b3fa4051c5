package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHealthStatus_NamesMissingChecks(t *testing.T) {
	h := newHealth()
	is := func(want string, wantReady bool) {
		t.Helper()
		ready, text := h.status(t.Context())
		assert.Equal(t, want, text)
		assert.Equal(t, wantReady, ready, text)
	}
	is("apps: starting; identity: starting; policy: starting; tunnel: starting", false)
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, stateOK)
	}
	is("ready", true)
	h.remark("tunnels", func() string { return "tunnels: 1 of 2 up" })
	is("ready; tunnels: 1 of 2 up", true)
	h.ask("tunnel", func() string { return "waiting: no route" })
	is("tunnel: waiting: no route; tunnels: 1 of 2 up", false)
}

// TestHealthStatus_ControlPlaneUnreachable is for the owner of the cluster, who looks at /readyz.
func TestHealthStatus_ControlPlaneUnreachable(t *testing.T) {
	h := newHealth()
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, stateOK)
	}
	first := time.Date(2026, 7, 4, 20, 27, 12, 0, time.UTC)
	h.answered(first, errors.New("no route; fix: open the port"))
	h.answered(first.Add(time.Hour), errors.New("refused"))
	ready, text := h.status(t.Context())
	assert.True(t, ready, "Runners may reach the agent all the same")
	assert.Equal(t, "ready; control plane: no answer since 2026-07-04T20:27:12Z: refused", text)
	h.set("tunnel", "waiting: no route")
	_, text = h.status(t.Context())
	assert.Equal(t, "tunnel: waiting: no route; control plane: no answer since 2026-07-04T20:27:12Z: refused", text)
	h.set("tunnel", stateOK)
	h.answered(first.Add(2*time.Hour), nil)
	_, text = h.status(t.Context())
	assert.Equal(t, "ready", text)
}
