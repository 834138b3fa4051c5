package command

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func TestComponentInstall_Aligned(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetContext(t.Context())
	require.NoError(t, carryOut(cmd, &components.Installer{}, components.Plan{Steps: []components.Step{{Component: "vpa", Action: components.Skip, Reason: "its mode is never"}}}))
	assert.Contains(t, out.String(), "vpa         skip     -           its mode is never\n")
}
