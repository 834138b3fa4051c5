package docs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

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
			want, err := set.Put([]byte(read(t, page)))
			require.NoError(t, err)
			golden.Check(t, page, string(want), "go generate ./docs")
		})
	}
}
