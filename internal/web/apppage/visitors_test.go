package apppage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPage_Visitors is readable without a script: a table, and charts that are drawn here.
func TestPage_Visitors(t *testing.T) {
	assert.Nil(t, apppage.VisitorsOf(runnerapi.Traffic{}), "an App without a public host has no visitors")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	figures := runnerapi.Traffic{
		Start: at, End: at.Add(2 * time.Minute), Step: "1m0s", Incomplete: "they cannot be read",
		Points: []runnerapi.TrafficPoint{{Requests: 120, Errors: 60, P95: new(12.5)}, {Requests: 60, P95: new(25.0)}, {Requests: 1}},
		Hosts: []runnerapi.HostTraffic{
			{
				Host: "shop.example.com", Mode: runnerapi.RouteTunnel, Counted: true, Requests: 180, Errors: 60, Sent: 2 << 20,
				Statuses: runnerapi.StatusCounts{Successful: 120, ServerError: 60}, Latency: &runnerapi.Latency{P50: 5, P95: 17, P99: 20},
			},
			{Host: "direct.example.com", Mode: runnerapi.RouteDirect, Counted: true},
			{Host: "full.example.com", Mode: runnerapi.RouteTunnel},
		},
	}
	page := failing()
	page.Visitors = apppage.VisitorsOf(figures)
	text := render(t, "app-page", page)
	for _, want := range []string{
		"Visitors in the last hour", "shop.example.com", "1.5/s", "17 ms", "direct mode: not counted", "not counted", "they cannot be read",
		"Requests: last 1/s, lowest 1/s, average 1.5/s, highest 2/s", "Errors (5xx)", "25 ms",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, render(t, "app-page", failing()), "Visitors in")
}
