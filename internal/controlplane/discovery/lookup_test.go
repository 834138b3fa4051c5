package discovery

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestLookup_LimitsSuggestions(t *testing.T) {
	t.Parallel()
	var agents []announce.Agent
	for i := range 100 {
		agents = append(agents, announce.Agent{Name: fmt.Sprintf("shop-%d", i)})
	}
	names := similar("shop-7x", agents)
	assert.Len(t, names, maxSuggestions)
	assert.Equal(t, "shop-7", names[0])
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"shop", "shop", 0}, {"shpo", "shop", 2}, {"sho", "shop", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		assert.Equal(t, tc.n, distance(tc.a, tc.b), "%q %q", tc.a, tc.b)
		assert.Equal(t, tc.n, distance(tc.b, tc.a), "%q %q", tc.b, tc.a)
	}
}
