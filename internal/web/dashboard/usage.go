package dashboard

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// usageTimeout bounds what the page of an App waits for Prometheus.
	usageTimeout = 5 * time.Second
	// usageKept is how long series are shown before they are read again. Prometheus measures once a
	// minute.
	usageKept = 30 * time.Second
)

// span is how far back series go, in steps that make some 70 points.
type span struct {
	apppage.Span
	since, step time.Duration
}

var spans = []span{
	{apppage.Span{Name: "1h", Text: "1 hour"}, time.Hour, time.Minute},
	{apppage.Span{Name: "6h", Text: "6 hours"}, 6 * time.Hour, 5 * time.Minute},
	{apppage.Span{Name: "24h", Text: "24 hours"}, 24 * time.Hour, 20 * time.Minute},
	{apppage.Span{Name: "7d", Text: "7 days"}, 7 * 24 * time.Hour, 2 * time.Hour},
}

// spanIn returns the span that a query names, or six hours.
func spanIn(query url.Values) span {
	for _, s := range spans {
		if s.Name == query.Get("span") {
			return s
		}
	}
	return spans[1]
}

// usage returns what an App used.
func (d *appPages) usage(ctx context.Context, key runnerapi.Key, query url.Values) apppage.Usage {
	chosen := spanIn(query)
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	history, err := d.history.read(ctx, key, chosen)
	if p := unread(err, "reading Prometheus"); p != nil {
		return d.usageWithout(p, key)
	}
	data := apppage.Usage{Span: chosen.Name}
	for _, s := range spans {
		data.Spans = append(data.Spans, s.Span)
	}
	for _, series := range history.Series {
		switch series.Metric {
		case runnerapi.MetricCPU:
			data.Charts = append(data.Charts, web.NewChart("CPU", coresUsed, history.Start, chosen.step, series.Values))
		case runnerapi.MetricMemory:
			data.Charts = append(data.Charts, web.NewChart("Memory", bytesUsed, history.Start, chosen.step, series.Values))
		}
	}
	return data
}

// usageWithout returns what an App used where Prometheus does not say it, for this problem.
func (d *appPages) usageWithout(prometheus *problem.Error, key runnerapi.Key) apppage.Usage {
	data := apppage.Usage{Sampled: true}
	var err error
	data.Charts, err = d.samples.charts(key)
	sampling := unread(err, "reading metrics-server")
	switch {
	case prometheus.Code != runnerapi.CodeNotSupported:
		data.Problem = problem.Errorf(prometheus.Code, "look at the component: `pipeops-agent component list`", "%s", prometheus.Detail) // its reader is the owner
	case sampling != nil && sampling.Code != runnerapi.CodeNotSupported:
		data.Problem = sampling
	case sampling != nil:
		data.Missing = len(data.Charts) == 0
	}
	return data
}

func coresUsed(cores float64) string { return strconv.FormatFloat(cores, 'f', 3, 64) + " cores" }
func bytesUsed(bytes float64) string { return cli.Memory(int64(bytes)) }

// histories keeps series for a moment: an open page is rendered at each change of its App.
type histories struct {
	from func(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error)
	now  func() time.Time

	mu   sync.Mutex
	kept map[historyKey]keptHistory
}

type historyKey struct {
	app  runnerapi.Key
	span string
}

type keptHistory struct {
	at      time.Time
	history runnerapi.MetricsHistory
	err     error
}

func newHistories(from func(context.Context, runnerapi.Key, runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error), now func() time.Time) *histories {
	return &histories{from: from, now: now, kept: map[historyKey]keptHistory{}}
}

func (h *histories) read(ctx context.Context, key runnerapi.Key, of span) (runnerapi.MetricsHistory, error) {
	at, now := historyKey{key, of.Name}, h.now()
	h.mu.Lock()
	for k, kept := range h.kept {
		if now.Sub(kept.at) >= usageKept {
			delete(h.kept, k)
		}
	}
	kept, found := h.kept[at]
	h.mu.Unlock()
	if found {
		return kept.history, kept.err
	}
	history, err := h.from(ctx, key, runnerapi.HistoryOptions{Since: of.since, Step: of.step})
	if errors.Is(ctx.Err(), context.Canceled) {
		return history, err // the page was closed: others may succeed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept[at] = keptHistory{now, history, err}
	return history, err
}
