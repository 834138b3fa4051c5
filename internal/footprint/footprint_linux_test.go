package footprint

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written lies in the program's writable part: its pages would be as the file has them, were they
// given back.
var written = [1 << 15]int{1}

func TestShrinkGivesTheProgramsPagesBackAndKeepsWhatWasWritten(t *testing.T) {
	for i := range written {
		written[i] = i + 2
	}
	before := resident(t)
	require.NoError(t, Shrink())
	after := resident(t)
	t.Logf("%d KiB of files resident, %d before", after, before)
	assert.Less(t, after, before-512, "KiB of files; what runs is back at once")
	for i := range written {
		require.Equal(t, i+2, written[i], "Shrink lost what was written")
	}
}

// resident returns how many KiB of files the kernel keeps in memory for this process.
func resident(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, line, found := strings.Cut(string(status), "\nRssFile:")
	require.True(t, found)
	_, err = fmt.Sscan(line, &kib)
	require.NoError(t, err)
	return kib
}

// TestWhatTheDynamicLinkerWroteIsKept has a program that is linked dynamically, as it is
// with cgo: its RELRO part cannot be written, and is not as the file has it.
func TestWhatTheDynamicLinkerWroteIsKept(t *testing.T) {
	const smaps = `00400000-01ba6000 r-xp 00000000 fe:00 1234 /agent
Size:              24216 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
07d85000-07d86000 r--p 07985000 fe:00 1234 /agent
Size:                  4 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
VmFlags: rd mr mw me ac
07d86000-07ed9000 rw-p 07986000 fe:00 1234 /agent
Anonymous:             0 kB
01ba6000-02263000 r--p 017a6000 fe:00 1234 /agent
Anonymous:             0 kB
`
	var given []uintptr
	require.NoError(t, eachGivable(strings.NewReader(smaps), "/agent", func(start, _ uintptr) error {
		given = append(given, start)
		return nil
	}))
	assert.Equal(t, []uintptr{0x400000, 0x1ba6000}, given)
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
