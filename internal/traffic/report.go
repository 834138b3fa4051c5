package traffic

import (
	"cmp"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SpanOf returns the span that covers a duration: an hour, or a day.
func SpanOf(since time.Duration) Span {
	if since > time.Hour {
		return Day
	}
	return Hour
}

// Report returns the figures of an App over a span that ends now, as the sum over all processes.
func Report(hosts []HostValues, app App, span Span, now time.Time) runnerapi.Traffic {
	out := runnerapi.Traffic{
		Namespace: app.Namespace, Name: app.Name, Start: span.time(span.first(now)), End: now.UTC().Truncate(time.Second), Step: span.Step.String(),
		Hosts: []runnerapi.HostTraffic{}, Points: make([]runnerapi.TrafficPoint, span.Steps),
	}
	steps, sums := make([]Figures, span.Steps), map[string]*Figures{}
	for _, h := range hosts {
		if h.App != app {
			continue
		}
		if sums[h.Host] == nil {
			sums[h.Host] = &Figures{}
		}
		for _, v := range h.in(span) {
			if at := v.Number - span.first(now); at >= 0 && at < int64(span.Steps) {
				steps[at].add(&v.Figures)
				sums[h.Host].add(&v.Figures)
			}
		}
	}
	for host, f := range sums {
		out.Hosts = append(out.Hosts, f.report(host))
	}
	slices.SortFunc(out.Hosts, func(a, b runnerapi.HostTraffic) int { return cmp.Compare(a.Host, b.Host) })
	for i := range steps {
		f := &steps[i]
		out.Points[i] = runnerapi.TrafficPoint{Requests: f.Requests(), Errors: f.Errors(), P95: f.millis(.95)}
	}
	return out
}

func (h HostValues) in(span Span) []Value {
	if span == Day {
		return h.Hours
	}
	return h.Minutes
}

func (f *Figures) report(host string) runnerapi.HostTraffic {
	out := runnerapi.HostTraffic{
		Host: host, Counted: true, Requests: f.Requests(), Errors: f.Errors(), Received: f.Received, Sent: f.Sent,
	}
	out.Statuses = runnerapi.StatusCounts{
		Informational: f.Statuses[0], Successful: f.Statuses[1], Redirection: f.Statuses[2],
		ClientError: f.Statuses[3], ServerError: f.Statuses[4],
	}
	for i, n := range f.Failed {
		if n > 0 {
			if out.Failed == nil {
				out.Failed = map[string]int64{}
			}
			out.Failed[reasons[i]] = n
		}
	}
	if p50 := f.millis(.5); p50 != nil {
		out.Latency = &runnerapi.Latency{P50: *p50, P95: *f.millis(.95), P99: *f.millis(.99)}
	}
	return out
}

// millis returns a quantile of the latency in milliseconds; nil if there is none.
func (f *Figures) millis(q float64) *float64 {
	d, found := f.Quantile(q)
	if !found {
		return nil
	}
	ms := float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
	return &ms
}
