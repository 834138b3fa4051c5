package e2e

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/charts"
)

// component is what the settings say of one; the values are by chart.
type component struct {
	Mode   string         `json:"mode"`
	Values map[string]any `json:"values,omitempty"`
}

// installComponents runs `pipeops-agent component` as the cluster's owner would.
func installComponents(t *testing.T, wanted map[string]component) {
	t.Helper()
	settings, err := yaml.Marshal(map[string]any{"components": wanted})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "components.yaml")
	require.NoError(t, os.WriteFile(file, settings, 0o600))
	names := slices.Sorted(maps.Keys(wanted))
	began := time.Now()
	install := []string{"install", "-f", file, "--charts", charts.Directory(t)}
	t.Cleanup(func() { components(context.Background(), t, append([]string{"delete"}, names...)...) })
	assert.Regexp(t, names[0]+`\s+install`, components(t.Context(), t, install...))
	t.Logf("installed after %s", time.Since(began).Round(time.Second))
	began = time.Now()
	assert.Regexp(t, names[0]+`\s+keep`, components(t.Context(), t, install...))
	t.Logf("the second run took %s", time.Since(began).Round(time.Second))
}

func components(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := sys.Agent(ctx, nil, append([]string{"component", "--kubeconfig", sys.Cluster.Kubeconfig()}, args...)...)
	require.NoError(t, err)
	return out
}
