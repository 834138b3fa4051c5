package acting

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestActing_Certificate(t *testing.T) {
	p := admintest.Open(t)
	a := New(Config{Store: p.Database(), CA: p.CA, TrustDomain: datadir.DefaultTrustDomain, AgentsDomain: datadir.DefaultAgentsDomain, Now: p.Clock})
	grant, err := credentials.ParseGrant("env=prod")
	require.NoError(t, err)
	runner := func() {
		t.Helper()
		_, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour, Agents: grant, Replace: true})
		require.NoError(t, err)
	}
	serial := func() string {
		t.Helper()
		made, err := a.certificate(t.Context(), "ada")
		require.NoError(t, err)
		return made.certificate.Leaf.SerialNumber.Text(16)
	}
	p.Operator(t, "ada", administration.RoleOperator)
	runner()
	_, err = a.Client(t.Context(), "ada", "agent")
	admintest.Refused(t, err, problem.Conflict, "operator runner set ada RUNNER")
	require.NoError(t, p.Operators.ActAs(t.Context(), "ada", "ci"))
	first := serial()
	leaf := a.issued["ada"].certificate.Leaf
	carried, err := credentials.GrantOf(leaf)
	require.NoError(t, err)
	assert.Equal(t, "env=prod", carried.String())
	assert.Equal(t, "ada", credentials.ActorOf(leaf))
	assert.Equal(t, p.Clock().Add(10*time.Minute), leaf.NotAfter)
	assert.Equal(t, first, serial(), "it is kept")
	p.Advance(6 * time.Minute)
	second := serial()
	assert.NotEqual(t, first, second, "replaced before it expires")
	runner()
	assert.NotEqual(t, second, serial(), "the Runner has other credentials")
	require.NoError(t, p.Runners.Revoke(t.Context(), "ci"))
	_, err = a.certificate(t.Context(), "ada")
	admintest.Refused(t, err, problem.Conflict, "was revoked")
}
