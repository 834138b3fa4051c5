package git

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// A large repository advertises more refs than the agent has memory for.
func TestRefs_KeepsWantedOnly(t *testing.T) {
	pkt := func(line string) string { return fmt.Sprintf("%04x%s\n", len(line)+5, line) }
	hash := strings.Repeat("1", 40)
	first, wanted := pkt(hash+" HEAD\x00shallow"), pkt(hash+" refs/tags/v1")+pkt(hash+" refs/tags/v1^{}")
	service := pkt("# service=git-upload-pack") + "0000"
	others := pkt(hash+" refs/heads/a") + pkt(hash+" refs/tags/v10")
	for name, c := range map[string]struct {
		ref  runnerapi.GitRef
		kept string
	}{
		"a tag":              {runnerapi.GitRef{Tag: "v1"}, wanted},
		"the default branch": {runnerapi.GitRef{}, ""},
		"a branch":           {runnerapi.GitRef{Branch: "a"}, pkt(hash + " refs/heads/a")},
	} {
		kept, err := io.ReadAll(only(strings.NewReader(service+first+others+wanted+"0000"), c.ref))
		require.NoError(t, err, name)
		assert.Equal(t, service+first+c.kept+"0000", string(kept), name)
	}
	for _, bad := range []string{"zzzz", "0001", "0003", "0010ab"} {
		_, err := io.ReadAll(only(strings.NewReader(bad), runnerapi.GitRef{}))
		require.Error(t, err, bad)
	}
}
