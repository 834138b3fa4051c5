package crontime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/crontime"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 30, 0, 0, time.UTC)
	for want, s := range map[string]runnerapi.Schedule{
		"2026-11-30T03:15:00Z": {Cron: "15 3 * * *"},
		"2026-12-01T02:15:00Z": {Cron: "15 3 * * *", TimeZone: "Europe/Berlin"}, // 02:15 UTC is over
		"2026-11-30T03:00:00Z": {Cron: "@hourly"},
	} {
		assert.Equal(t, want, crontime.Next(runnerapi.AppSpec{Schedule: &s}, now).UTC().Format(time.RFC3339), "%+v", s)
	}
	for _, s := range []*runnerapi.Schedule{nil, {Cron: "@daily", Suspended: true}, {Cron: "0 0 31 2 *"}, {Cron: "@daily", TimeZone: "Mars/Olympus"}} {
		assert.Zero(t, crontime.Next(runnerapi.AppSpec{Schedule: s}, now), "%+v", s)
	}
}
