package doctor_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const patience = time.Minute

// plane is a control plane in this process, without a broker.
type plane struct {
	*controlplane.ControlPlane
	*controlplane.Admin
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	cfg := controlplane.Config{
		DataDir: t.TempDir(), APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		HeartbeatInterval: time.Second, Log: zerolog.Nop(),
	}
	cp, err := controlplane.New(t.Context(), cfg)
	require.NoError(t, err)
	admin, err := controlplane.OpenAdmin(t.Context(), cfg.DataDir, time.Now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, cp.Run(ctx)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		assert.NoError(t, admin.Close())
	})
	return &plane{cp, admin}
}

func (p *plane) token(t *testing.T, opts controlplane.TokenOptions) string {
	t.Helper()
	token, _, err := p.CreateToken(t.Context(), opts)
	require.NoError(t, err)
	return token.Reveal()
}

// options are those of an agent that is set up well but has no cluster.
func (p *plane) options(t *testing.T) doctor.Options {
	t.Helper()
	return doctor.Options{
		Version: "test",
		Config: config.Config{
			ControlPlaneURL: p.ControlPlane.Advertised().API, ClusterName: "shop", Namespace: kubetest.AgentNamespace,
			StateDir: t.TempDir(), Token: p.token(t, controlplane.TokenOptions{TTL: time.Hour, Uses: 1}),
		},
	}
}

// in puts a cluster into the options.
func in(opts doctor.Options, cluster *rest.Config) doctor.Options {
	opts.Kubernetes = cluster
	return opts
}

// finding answers what a check found; the first, when there are several.
func finding(t *testing.T, r doctor.Report, check string) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == check })
	require.GreaterOrEqual(t, i, 0, "%s is not among %+v", check, r.Findings)
	return r.Findings[i]
}

// requireOnly asserts that nothing failed but these.
func requireOnly(t *testing.T, r doctor.Report, checks ...string) {
	t.Helper()
	for _, f := range r.Findings {
		assert.Equal(t, slices.Contains(checks, f.Check), f.Status == doctor.Failed, "%+v", f)
		assert.NotEmpty(t, f.Detail, f.Check)
		if f.Status == doctor.Failed || f.Status == doctor.Warning {
			assert.NotEmpty(t, f.Fix, "%+v", f)
		}
	}
	assert.Equal(t, len(checks) == 0, r.Healthy)
}
