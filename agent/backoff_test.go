package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestJitterOnlyShortens(t *testing.T) {
	for range 1000 {
		got := jitter(time.Minute)
		assert.LessOrEqual(t, got, time.Minute)
		assert.GreaterOrEqual(t, got, 45*time.Second)
	}
}
