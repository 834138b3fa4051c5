package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPolicyAllow_AsRefusalsSay: the command line of a refusal allows what was refused, and no
// other Runner.
func TestPolicyAllow_AsRefusalsSay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for command, access := range policy.Commands() {
		if slices.Contains([]string{"put-release", runnerapi.KubernetesCall}, command) {
			continue // chart allow, and a user with rights of its own
		}
		require.NoError(t, os.WriteFile(file, []byte("rules: []\n"), 0o600))
		for _, namespace := range []string{"shop", ""} {
			i := runnerapi.Intent{Command: command, Access: access, Runner: "ci", Namespace: namespace, Recorded: true}
			if policy.BringsObjects(command) {
				i.Objects = []runnerapi.ObjectIntent{{Kind: "Deployment.apps", Name: "a"}, {Kind: "ConfigMap", Name: "b"}}
			}
			said, refused := problem.Of(decides(t, file, i))
			require.True(t, refused, command)
			_, line, found := strings.Cut(said.Fix, "which this makes: pipeops-agent ")
			require.True(t, found, said.Fix)
			root := newRoot()
			root.SetOut(io.Discard)
			root.SetArgs(strings.Fields(line))
			require.NoError(t, root.ExecuteContext(t.Context()), line)
			assert.NoError(t, decides(t, file, i), line)
			i.Runner = "cd"
			assert.Error(t, decides(t, file, i), line)
		}
	}
}

// TestPolicyAllow_InPod: the agent's own account may not change the policy.
func TestPolicyAllow_InPod(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "policy", nil)
	err := mayChange(fmt.Errorf("change the policy: %w", refused))
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "(fix: give --kubeconfig of a user who may change the policy")
	require.NoError(t, mayChange(nil))
}

// decides asks the policy in a file.
func decides(t *testing.T, file string, i runnerapi.Intent) error {
	t.Helper()
	doc, err := policy.ReadFile(file)
	require.NoError(t, err)
	p := policy.New(file)
	p.Set(doc, nil)
	return p.Decide(i)
}
