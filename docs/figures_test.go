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
// renders to. With -update it writes them, without measuring.
func TestBenchPages_UpToDate(t *testing.T) {
	for part := range figures.Parts() {
		t.Run(part, func(t *testing.T) {
			set, err := figures.Read(part, "bench")
			require.NoError(t, err)
			require.NoError(t, set.Check())
			page := figures.Page(part)
			have := read(t, page)
			want, err := set.Put([]byte(have))
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(page, want, 0o644))
				return
			}
			assert.Equal(t, string(want), have, "run: go generate ./docs")
		})
	}
}
