package apppage

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Visitors is what visitors of an App's public hosts requested in the last hour.
type Visitors struct {
	Hosts      []runnerapi.HostTraffic
	Charts     []web.Chart
	Incomplete string
	seconds    float64
}

// VisitorsOf returns what a page shows of figures; nil for an App without a public host.
func VisitorsOf(t runnerapi.Traffic) *Visitors {
	if len(t.Hosts) == 0 {
		return nil
	}
	v := &Visitors{Hosts: t.Hosts, Incomplete: t.Incomplete, seconds: max(t.End.Sub(t.Start).Seconds(), 1)}
	step, err := time.ParseDuration(t.Step)
	if err != nil || len(t.Points) < 2 {
		return v
	}
	whole := t.Points[:len(t.Points)-1] // the last step is not over
	var requests, failures, latencies []*float64
	for _, p := range whole {
		requests = append(requests, new(float64(p.Requests)/step.Seconds()))
		failures, latencies = append(failures, new(float64(p.Errors)/step.Seconds())), append(latencies, p.P95)
	}
	v.Charts = []web.Chart{
		web.NewChart("Requests", perSecond, t.Start, step, requests),
		web.NewChart("Errors (5xx)", perSecond, t.Start, step, failures),
		web.NewChart("Response begins, p95", milliseconds, t.Start, step, latencies),
	}
	return v
}

func perSecond(n float64) string { return strconv.FormatFloat(n, 'g', 3, 64) + "/s" }

func milliseconds(ms float64) string { return fmt.Sprintf("%.3g ms", ms) }

// Rate returns a host's requests per second.
func (v *Visitors) Rate(h runnerapi.HostTraffic) string {
	return perSecond(float64(h.Requests) / v.seconds)
}

// Latency returns a quantile in milliseconds; empty for none.
func (v *Visitors) Latency(h runnerapi.HostTraffic) string {
	if h.Latency == nil {
		return ""
	}
	return milliseconds(h.Latency.P95)
}

// Note returns what the figures of a host leave out; empty for nothing.
func (v *Visitors) Note(h runnerapi.HostTraffic) string {
	switch {
	case h.Mode == runnerapi.RouteDirect:
		return "direct mode: not counted"
	case !h.Counted:
		return "not counted"
	}
	return ""
}
