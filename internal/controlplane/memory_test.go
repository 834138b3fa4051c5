package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAStormIsOverWhenHardlyAnybodyComes(t *testing.T) {
	var s storm
	for _, step := range []struct {
		logins uint64
		over   bool
	}{{100, false}, {100, false}, {5000, false}, {9000, false}, {9100, true}, {9100, false}, {9299, false}, {9299, false}, {9300, true}} {
		assert.Equal(t, step.over, s.over(step.logins), "%d logins", step.logins)
	}
}
