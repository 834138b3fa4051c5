package doctor_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

const patience = 3 * time.Minute

// options are those of an agent that is set up well but has no cluster.
func options(t *testing.T, p *planetest.Plane) doctor.Options {
	t.Helper()
	return doctor.Options{
		Version: "test",
		Config: config.Config{
			ControlPlaneURL: p.URL(), ClusterName: "shop", Namespace: kubetest.AgentNamespace,
			StateDir: t.TempDir(), Token: p.Token(t, administration.TokenOptions{TTL: time.Hour, Uses: 1}),
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
