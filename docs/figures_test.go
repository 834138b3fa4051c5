package docs_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
)

var update = flag.Bool("update", false, "write the tables of bench.md and chaos.md")

//go:generate go test . -run TestBenchPages_UpToDate -update

// TestBenchPages_UpToDate compares the tables of bench.md and chaos.md with what bench/*.json
// renders to, and what the JSON says of its bounds with the bounds in the code. With -update it
// judges the JSON by these bounds and writes both, without measuring.
func TestBenchPages_UpToDate(t *testing.T) {
	for _, part := range figures.Parts() {
		t.Run(part.Name, func(t *testing.T) {
			set, err := figures.Read(part, "bench")
			require.NoError(t, err)
			if *update {
				set.Judge()
				require.NoError(t, set.Save("bench"))
			}
			require.NoError(t, set.Check(), "`go generate ./docs` judges by the bounds of the code")
			have := read(t, part.Page)
			want, err := set.Put([]byte(have))
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(part.Page, want, 0o644))
				return
			}
			assert.Equal(t, string(want), have, "run: go generate ./docs")
		})
	}
}
