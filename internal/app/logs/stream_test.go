package logs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestSkipper_SkipsReadLines(t *testing.T) {
	at := func(n int) podLine { return podLine{line: runnerapi.LogLine{Time: time.Unix(int64(n), 0)}} }
	s := skipper{from: position{at: time.Unix(5, 0), times: 2}}
	var kept []int64
	for _, l := range []podLine{at(4), at(5), at(5), at(5), at(6)} {
		if !s.read(l) {
			kept = append(kept, l.line.Time.Unix())
		}
	}
	assert.Equal(t, []int64{5, 6}, kept, "the third line of that instant is new")
}
