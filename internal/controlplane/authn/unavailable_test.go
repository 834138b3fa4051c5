package authn_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

// TestIdentify_WithoutDatabase returns 503 for callers whom the database would know: clients take
// 401 as final.
func TestIdentify_WithoutDatabase(t *testing.T) {
	p := open(t)
	agent, runner, operator := p.agent(t, "shop"), p.issue(t, ca.RoleRunner, "ci"), p.issue(t, ca.RoleOperator, "alice")
	require.NoError(t, p.Database().Close())
	for name, identify := range map[string]func() error{
		"agent":    func() error { _, err := p.AgentOfRequest(admintest.CallBy(t, agent, "uid-shop")); return err },
		"tunnel":   func() error { _, err := p.AgentOfTunnel(*admintest.CallBy(t, agent, "").TLS); return err },
		"Runner":   func() error { _, err := p.RunnerOfRequest(admintest.CallBy(t, runner, "")); return err },
		"renewal":  func() error { _, err := p.Renew(admintest.CallBy(t, runner, "")); return err },
		"operator": func() error { _, err := p.OperatorOfRequest(admintest.CallBy(t, operator, "")); return err },
	} {
		known, ok := errors.AsType[*problem.Error](identify())
		require.True(t, ok, name)
		assert.Equal(t, http.StatusServiceUnavailable, known.Status, name)
		assert.NotZero(t, known.RetryAfter, name)
	}
}
