package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inCI is how long things fail in `make test`. PIPEOPS_CHAOS_DURATION says otherwise.
const inCI = 5 * time.Minute

// TestChaos has everything fail for five minutes, another way each time: the seed is
// its first line.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("brings up the whole system")
	}
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	duration := inCI
	if text := os.Getenv("PIPEOPS_CHAOS_DURATION"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	o := usual
	o.Duration = duration
	require.NoError(t, run(t.Context(), o))
}
