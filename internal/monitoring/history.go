package monitoring

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// minWindow is the shortest range for a rate: Prometheus' charts scrape once a minute.
const minWindow = 5 * time.Minute

// metric is one metric of an App, with the query for it.
type metric struct{ name, unit, query string }

// metricsOf returns the queries for an App's metrics, summed up by these labels. Pods that are gone
// have no labels in Prometheus. But an App's pods begin with its name, and have a container of its
// name: pods of an App "web-db" have none called "web".
func metricsOf(key runnerapi.Key, by []string, window time.Duration) []metric {
	pods := []matcher{equals("namespace", key.Namespace), beginsWith("pod", key.Name+"-")}
	own := slices.Concat(pods, []matcher{equals("container", key.Name)})
	theirs := " and on (namespace, pod) " + selector("container_memory_working_set_bytes", own...)
	sum := func(series string) string { return "sum by (" + strings.Join(by, ", ") + ") (" + series + ")" }
	traffic := func(name string) string { return sum(rate(selector(name, pods...), window) + theirs) }
	return []metric{
		{runnerapi.MetricCPU, "cores", sum(rate(selector("container_cpu_usage_seconds_total", own...), window))},
		{runnerapi.MetricMemory, "bytes", sum(selector("container_memory_working_set_bytes", own...))},
		{runnerapi.MetricRestarts, "count", sum(selector("kube_pod_container_status_restarts_total", own...))},
		{runnerapi.MetricNetworkReceive, "bytesPerSecond", traffic("container_network_receive_bytes_total")},
		{runnerapi.MetricNetworkTransmit, "bytesPerSecond", traffic("container_network_transmit_bytes_total")},
		// The usual names: of Prometheus' own clients, and of OpenTelemetry.
		{runnerapi.MetricRequests, "requestsPerSecond", strings.Join([]string{
			traffic("http_requests_total"), traffic("http_server_request_duration_seconds_count"), traffic("http_request_duration_seconds_count"),
		}, " or ")},
	}
}

// MetricsHistory implements backend.Monitoring.
func (r *Reader) MetricsHistory(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
	if _, err := r.apps.Get(ctx, key); err != nil {
		return runnerapi.MetricsHistory{}, err
	}
	at, err := r.located(ctx, prometheus)
	if err != nil {
		return runnerapi.MetricsHistory{}, err
	}
	steps := int(opts.Since / opts.Step)
	end := r.now().UTC().Truncate(time.Second)
	grid := grid{start: end.Add(-time.Duration(steps) * opts.Step), step: opts.Step, points: steps + 1}
	out := runnerapi.MetricsHistory{Namespace: key.Namespace, Name: key.Name, Start: grid.start, End: end, Step: opts.Step.String()}
	by := []string{"namespace"}
	if opts.ByPod {
		by = append(by, "pod")
	}
	for _, m := range metricsOf(key, by, max(minWindow, opts.Step)) {
		found, err := r.queryRange(ctx, at, m.query, grid)
		if err != nil {
			return runnerapi.MetricsHistory{}, err
		}
		for _, s := range found {
			if !isOf(s.Metric, key, opts.ByPod) {
				continue
			}
			if len(out.Series) == runnerapi.MaxHistorySeries {
				out.Omitted++
				continue
			}
			out.Series = append(out.Series, runnerapi.MetricSeries{Metric: m.name, Unit: m.unit, Pod: s.Metric["pod"], Values: grid.values(s.Values)})
		}
	}
	return out, nil
}

// isOf reports whether a series is of an App: what else Prometheus may answer is not shown.
func isOf(labels map[string]string, key runnerapi.Key, byPod bool) bool {
	pod := labels["pod"]
	return labels["namespace"] == key.Namespace && (pod != "") == byPod && (pod == "" || strings.HasPrefix(pod, key.Name+"-"))
}

// matrix is Prometheus' answer to a range query:
// https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries
type matrix struct {
	Data struct {
		ResultType string   `json:"resultType"`
		Result     []series `json:"result"`
	} `json:"data"`
}

type series struct {
	Metric map[string]string `json:"metric"`
	Values []sample          `json:"values"`
}

func (r *Reader) queryRange(ctx context.Context, at *Component, query string, g grid) ([]series, error) {
	var answer matrix
	err := r.getFrom(ctx, prometheus, at, "/api/v1/query_range", url.Values{
		"query": {query}, "step": {strconv.Itoa(int(g.step.Seconds()))},
		"start": {strconv.FormatInt(g.start.Unix(), 10)}, "end": {strconv.FormatInt(g.end().Unix(), 10)},
		"timeout": {strconv.Itoa(int(askTimeout.Seconds())) + "s"},
	}, &answer)
	return answer.Data.Result, err
}

// grid is the times that series have values for.
type grid struct {
	start  time.Time
	step   time.Duration
	points int
}

func (g grid) end() time.Time { return g.start.Add(time.Duration(g.points-1) * g.step) }

// values puts samples where they belong.
func (g grid) values(samples []sample) []*float64 {
	out := make([]*float64, g.points)
	for _, s := range samples {
		at := math.Round((s.at - float64(g.start.Unix())) / g.step.Seconds())
		if at >= 0 && at < float64(g.points) && !math.IsNaN(s.value) && !math.IsInf(s.value, 0) {
			out[int(at)] = new(s.value)
		}
	}
	return out
}
