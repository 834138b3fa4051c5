package monitoring

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// vpaTimeout is short: an App's metrics are shown without what VPA recommends, too.
const vpaTimeout = 2 * time.Second

// The metrics about VerticalPodAutoscalers, as the values of the component prometheus have
// kube-state-metrics make them.
const (
	vpaTarget = "kube_verticalpodautoscaler_recommendation_target"
	vpaMode   = "kube_verticalpodautoscaler_update_mode"
)

// Meter measures Apps.
type Meter interface {
	// Metrics returns what an App uses. It returns NotSupported if there is no metrics-server.
	Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error)
}

// Beside adds a meter, and to its figures what a VerticalPodAutoscaler recommends for the App. The
// agent has no right to read these objects, and reads them from Prometheus.
func (r *Reader) Beside(meter Meter) backend.Monitoring { return besideVPA{r, meter} }

type besideVPA struct {
	*Reader
	meter Meter
}

// Metrics implements backend.Monitoring.
func (b besideVPA) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	m, err := b.meter.Metrics(ctx, key)
	if err == nil {
		m.VPA = b.vpa(ctx, key)
	}
	return m, err
}

// vpa returns the recommendation for an App; nil if the App has no VerticalPodAutoscaler, or if
// Prometheus does not answer.
func (r *Reader) vpa(ctx context.Context, key runnerapi.Key) *runnerapi.VPAMetrics {
	ctx, cancel := context.WithTimeout(ctx, vpaTimeout)
	defer cancel()
	app := []matcher{equals("namespace", key.Namespace), equals("target_name", key.Name)}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  sample            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	query := selector(vpaTarget, app...) + " or " + selector(vpaMode, app...)
	if err := r.get(ctx, prometheus, "/api/v1/query", url.Values{"query": {query}}, &answer); err != nil {
		return nil
	}
	var out *runnerapi.VPAMetrics
	for _, s := range answer.Data.Result {
		of := s.Metric
		if of["namespace"] != key.Namespace || of["target_name"] != key.Name {
			continue
		}
		if out == nil {
			out = &runnerapi.VPAMetrics{Name: text(of["verticalpodautoscaler"]), Containers: []runnerapi.VPARecommendation{}}
		}
		if of["verticalpodautoscaler"] == out.Name {
			addVPA(out, of, s.Value.value)
		}
	}
	return out
}

// addVPA takes account of one series.
func addVPA(out *runnerapi.VPAMetrics, of map[string]string, value float64) {
	if of["__name__"] == vpaMode {
		out.Mode = text(of["update_mode"])
		return
	}
	name := text(of["container"])
	i, found := slices.BinarySearchFunc(out.Containers, name, func(c runnerapi.VPARecommendation, name string) int { return cmp.Compare(c.Name, name) })
	if !found {
		out.Containers = slices.Insert(out.Containers, i, runnerapi.VPARecommendation{Name: name})
	}
	switch of["resource"] {
	case "cpu":
		out.Containers[i].CPU = whole(value * 1000)
	case "memory":
		out.Containers[i].Memory = whole(value)
	}
}

// whole returns a figure as a number that JSON takes; nil for one that is none.
func whole(value float64) *int64 {
	if math.IsNaN(value) || value < 0 || value > 1<<60 {
		return nil
	}
	return new(int64(math.Round(value)))
}
