package source

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestSource_ContinuesWithApproval needs no approval at each commit. The objects that it brings
// have none.
func TestSource_ContinuesWithApproval(t *testing.T) {
	doc, err := policy.Parse([]byte("rules: [{name: careful, approval: 10m, commands: ['*', put-source]}]"))
	require.NoError(t, err)
	p := policy.New("policy.yaml")
	p.Set(doc, nil)
	var passed bool
	a := &applier{policy: enough{p, &passed}}
	_, err = (&reconciler{applier: a}).attempt(t.Context(), &object{}, false)
	require.ErrorContains(t, err, "enough")
	require.True(t, passed)
	err = a.allowed(&object{}, runnerapi.Intent{Command: putApp, Access: runnerapi.Writes, App: &runnerapi.AppSpec{}})
	require.ErrorContains(t, err, "approval")
}

// enough refuses what the policy allows, and notes that.
type enough struct {
	*policy.Policy
	passed *bool
}

func (e enough) Decide(i runnerapi.Intent) error {
	if err := e.Policy.Decide(i); err != nil {
		return err
	}
	*e.passed = true
	return errors.New("enough")
}

func TestNew_DeniesWithoutPolicy(t *testing.T) {
	err := New(nil, Config{}).reconciler.applier.allowed(&object{}, runnerapi.Intent{Command: putApp, Access: runnerapi.Writes})
	require.ErrorContains(t, err, "no policy")
}
