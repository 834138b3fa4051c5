package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// fixedSeeds are those with which a release has everything fail. A seed that once found a bug
// belongs here.
var fixedSeeds = []uint64{4711, 295516155, 20261123}

// eachSeed is for how long things fail with a seed.
const eachSeed = 3 * time.Minute

// TestChaos has everything fail, once with each fixed seed.
func TestChaos(t *testing.T) {
	suite.Release(t, "everything fails at random")
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	for _, seed := range fixedSeeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			o := usual
			o.Seed, o.Duration = seed, eachSeed
			require.NoError(t, execute(t.Context(), o))
		})
	}
}
