package server_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// A body of a few MiB that stands for more than a million values is refused before it is
// decoded, and is not decoded for its record either.
func TestAudit_SkipsRefusedBody(t *testing.T) {
	agent, log := watched(t, newAsked(func(runnerapi.Intent) error { return nil }))
	r := newRaw(t, agent)
	body := `{"values":[` + strings.Repeat("{},", runnerapi.MaxReleaseBody/3-8) + `{}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, text := r.do("PUT", guidePath, body, "Content-Type", "application/json")
	assert.Equal(t, 400, resp.StatusCode, string(text))
	record := log.take(t, 1)[0]
	runtime.ReadMemStats(&after)
	assert.NotContains(t, string(record.Arguments), "body")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(48<<20), "some copies of the text, and no values")
}
