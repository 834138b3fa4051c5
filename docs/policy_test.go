package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

// TestPolicyPage_ExamplesAreValid reads each example of the pages about policies.
func TestPolicyPage_ExamplesAreValid(t *testing.T) {
	blocks := strings.Split(read(t, "cluster-owner/policy.md")+read(t, "reference/policy.md")+read(t, "deployer/kubernetes-api.md")+read(t, "production/hardening.md"), "```yaml\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		example, _, _ := strings.Cut(block, "```")
		_, err := policy.Parse([]byte(example))
		require.NoError(t, err, example)
	}
}
