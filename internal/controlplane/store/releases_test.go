package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRelease_IsFor(t *testing.T) {
	agent := Agent{ID: "a", Labels: map[string]string{"ring": "early"}}
	for _, c := range []struct {
		release Release
		want    bool
	}{
		{Release{}, true},
		{Release{Agents: []string{"b", "a"}}, true},
		{Release{Agents: []string{"b"}}, false},
		{Release{Labels: map[string]string{"ring": "early"}}, true},
		{Release{Labels: map[string]string{"ring": "late"}}, false},
		{Release{Labels: map[string]string{"zone": ""}}, false},
		{Release{Agents: []string{"a"}, Labels: map[string]string{"ring": "late"}}, false},
	} {
		assert.Equal(t, c.want, c.release.IsFor(agent), c.release)
	}
}
