package manifests

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestInventory_Bounded counts entries and bytes, below the limit of a ConfigMap.
func TestInventory_Bounded(t *testing.T) {
	entries := make([]Ref, maxEntries)
	for n := range entries {
		entries[n] = Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "production", Name: fmt.Sprintf("web-%d", n)}
	}
	require.NoError(t, fits(entries))
	require.ErrorContains(t, fits(slices.Concat(entries, entries[:1])), "10001 objects")
	for n := range entries {
		entries[n].Name = strings.Repeat("x", 200)
	}
	require.ErrorContains(t, fits(entries), "983040 bytes")
	assert.Less(t, maxInventory, 1<<20)
}

func TestInventory_RoundTrip(t *testing.T) {
	entries := []Ref{{APIVersion: "v1", Kind: "Namespace", Name: "a"}, {APIVersion: "apps/v1", Kind: "Deployment", Namespace: "b", Name: "c.d"}}
	read, err := parseEntries(formatEntries(entries))
	require.NoError(t, err)
	assert.Equal(t, entries, read)
	_, err = parseEntries("v1 ConfigMap a\n")
	require.ErrorContains(t, err, "changed by another client")
}

// peakMiB is how much the heap grows while do runs.
func peakMiB(t *testing.T, do func()) uint64 {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.Store(max(peak.Load(), now.HeapAlloc))
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	do()
	close(stop)
	await.Closed(t, done, "the end of the measurement")
	return (peak.Load() - min(peak.Load(), before.HeapAlloc)) >> 20
}

// TestDecode_BoundsMemory reads the largest input in a pod with 160 MiB.
func TestDecode_BoundsMemory(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx: "
	for name, text := range map[string]string{
		"a list":    head + "[" + strings.Repeat("x,", limits.Values-20) + "x]",
		"mappings":  head + "\n" + strings.Repeat("- {a: b}\n", limits.Values/3-20),
		"one text":  head + strings.Repeat("x", MaxBytes-len(head)),
		"one block": head + "|\n" + strings.Repeat(" "+strings.Repeat("x", 38)+"\n", limits.Values-20),
	} {
		t.Run(name, func(t *testing.T) {
			peak := peakMiB(t, func() {
				_, err := Read(strings.NewReader(text))
				require.NoError(t, err)
			})
			t.Logf("%d bytes, %d values: %d MiB", len(text), decode.Values([]byte(text)), peak)
			assert.Less(t, peak, uint64(80))
		})
	}
}
