package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
