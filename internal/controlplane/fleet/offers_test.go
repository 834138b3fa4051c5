package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestIsFor(t *testing.T) {
	agent := store.Agent{ID: "a", Labels: map[string]string{"ring": "early"}}
	for _, c := range []struct {
		release store.Release
		want    bool
	}{
		{store.Release{}, true},
		{store.Release{Agents: []string{"b", "a"}}, true},
		{store.Release{Agents: []string{"b"}}, false},
		{store.Release{Labels: map[string]string{"ring": "early"}}, true},
		{store.Release{Labels: map[string]string{"ring": "late"}}, false},
		{store.Release{Labels: map[string]string{"zone": ""}}, false},
		{store.Release{Agents: []string{"a"}, Labels: map[string]string{"ring": "late"}}, false},
	} {
		assert.Equal(t, c.want, isFor(c.release, agent), c.release)
	}
}
