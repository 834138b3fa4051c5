package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShrinkLosesNothing(t *testing.T) {
	before := map[string]int{"a": 1}
	for range 3 {
		require.NoError(t, shrink())
		assert.Equal(t, map[string]int{"a": 1}, before)
	}
}

func TestOnlyTheProgramsReadOnlyMappingsAreGivenBack(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-01ba6000 r-xp 00000000 fe:00 1234                       /agent":  true,
		"01ba6000-02263000 r--p 017a6000 fe:00 1234                       /agent":  true,
		"03463000-034f4000 rw-p 03062000 fe:00 1234                       /agent":  false,
		"7f0000000000-7f0000001000 r--p 00000000 fe:00 99                 /lib.so": false,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                              false,
		"nonsense": false,
	} {
		_, _, got := readOnlyMapping(line, "/agent")
		assert.Equal(t, want, got, line)
	}
}
