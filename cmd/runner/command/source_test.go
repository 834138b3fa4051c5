package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/sources"
)

// TestSource_FlagsOfFields: errors about a field name a flag that exists.
func TestSource_FlagsOfFields(t *testing.T) {
	cmd, _, err := sources.NewSource(&base.CLI{}).Find([]string{"set"})
	require.NoError(t, err)
	for field, flags := range sources.FlagOf {
		for flag := range strings.SplitSeq(flags, ", ") {
			if name, isFlag := strings.CutPrefix(flag, "--"); isFlag {
				assert.NotNil(t, cmd.Flags().Lookup(name), "%s is %s", field, flag)
			}
		}
	}
}
