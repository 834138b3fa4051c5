package components

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A chart without a digest is refused, so this build must have all.
func TestDigests_OfEachChart(t *testing.T) {
	known, err := digests()
	require.NoError(t, err)
	for _, component := range table {
		for _, c := range component.Charts {
			if !c.IsOwn() {
				assert.Contains(t, known, c.String())
			}
		}
	}
}
