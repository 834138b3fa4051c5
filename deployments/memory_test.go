package deployments_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// TestAgentMemory_SameEverywhere: whichever way the agent is installed, it has the memory with
// which test/pressure runs it.
func TestAgentMemory_SameEverywhere(t *testing.T) {
	limit, soft, err := deployments.AgentMemory()
	require.NoError(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	var values struct {
		Resources  struct{ Limits struct{ Memory string } }
		GoMemLimit string
	}
	require.NoError(t, yaml.Unmarshal([]byte(read("helm/pipeops-agent/values.yaml")), &values))
	assert.Equal(t, limit, values.Resources.Limits.Memory)
	assert.Equal(t, soft, values.GoMemLimit)

	bytes := resource.MustParse(limit)
	assert.Contains(t, read("systemd/pipeops-agent.service"), fmt.Sprintf("\nEnvironment=GOMEMLIMIT=%s\n", soft))
	assert.Contains(t, read("systemd/pipeops-agent.service"), fmt.Sprintf("\nMemoryMax=%dM\n", 2*bytes.Value()>>20), "of two agents")
	assert.Contains(t, read("openrc/pipeops-agent"), fmt.Sprintf("\nexport GOMEMLIMIT=%q\n", soft))
	assert.Contains(t, read("../docs/production/sizing.md"), fmt.Sprintf("| none | 1 | 20m, 32Mi | %s | %s |", limit, soft))
}
