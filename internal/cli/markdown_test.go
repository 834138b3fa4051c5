package cli_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func TestOutput_Markdown(t *testing.T) {
	var out cli.Output
	require.NoError(t, out.Set("markdown"))
	var text strings.Builder
	require.NoError(t, out.Write(&text, nil, func(w io.Writer) {
		cli.Row(w, "NAME", "PHASE", cli.Wide("IMAGE"))
		cli.Row(w, "web", "Healthy", "shop/web")
		cli.Row(w, "a|b <b>_x_", "")
		cli.Row(w, "URL", "https://web.example.com", "", "x")
	}))
	assert.Equal(t, `| NAME | PHASE |  |
| --- | --- | --- |
| web | Healthy |  |
| a\|b &lt;b&gt;\_x\_ | - |  |
| URL | https://web.example.com | x |
`, text.String())
}

// TestFailure_Annotates prints what GitHub Actions shows at a line of a file.
func TestFailure_Annotates(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "true")
	for name, c := range map[string]struct {
		failure cli.Failure
		want    string
	}{
		"at a line": {
			cli.Failure{What: "deploy/app,1.yaml: line 5: ports[0].protcol: unknown field", Fix: "remove it"},
			"::error file=deploy/app%2C1.yaml,line=5::ports[0].protcol: unknown field%0Afix: remove it",
		},
		"at the lines of details": {
			cli.Failure{What: "2 objects are refused", Details: []string{"field: a.yaml: line 3: 100% wrong", "field: b.yaml: line 7, column 2: wrong"}},
			"::error file=a.yaml,line=3::100%25 wrong\n::error file=b.yaml,line=7::wrong",
		},
		"at none": {
			cli.Failure{What: "the image is missing\n::set-output name=x::y", Details: []string{"field: image"}},
			"::error::the image is missing%0A::set-output name=x::y%0Afield: image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			c.failure.Print(&text, "pipeops-runner")
			assert.True(t, strings.HasSuffix(text.String(), c.want+"\n"), text.String())
		})
	}
	t.Setenv("GITHUB_ACTIONS", "")
	var text strings.Builder
	cli.Failure{What: "wrong"}.Print(&text, "pipeops-runner")
	assert.Equal(t, "error: wrong\n", text.String())
}
