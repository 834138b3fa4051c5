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

func pkt(line string) string { return fmt.Sprintf("%04x%s\n", len(line)+5, line) }

var hash = strings.Repeat("1", 40)

// filtered returns what is kept of an advertisement.
func filtered(advertised string, ref runnerapi.GitRef) (string, error) {
	f, err := only(ref)
	if err != nil {
		return "", err
	}
	kept, err := io.ReadAll(f.of(strings.NewReader(advertised)))
	return string(kept), err
}

// A large repository advertises more refs than the agent has memory for.
func TestRefs_KeepsWantedOnly(t *testing.T) {
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
		kept, err := filtered(service+first+others+wanted+"0000", c.ref)
		require.NoError(t, err, name)
		assert.Equal(t, service+first+c.kept+"0000", kept, name)
	}
	for _, bad := range []string{"zzzz", "0001", "0003", "0010ab"} {
		_, err := filtered(bad, runnerapi.GitRef{})
		require.Error(t, err, bad)
	}
}
