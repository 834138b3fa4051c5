package server

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type metricsOutput struct{ Body runnerapi.AppMetrics }

// metricsCalls are the calls about what Apps use.
type metricsCalls struct {
	*calls
	monitoring backend.Monitoring
}

func (s *metricsCalls) routes() {
	op := alsoRefuses(operation("get-app-metrics", "Apps", "Get an App's metrics",
		"CPU and memory that its containers use against their requests and limits, by metrics-server; and the requests that would "+
			"fit, with the figures they stand on. Without metrics-server: 501.", 0), http.StatusNotImplemented)
	register(s.calls, op, func(ctx context.Context, in *params.App) (*metricsOutput, error) {
		m, err := s.monitoring.Metrics(ctx, appKey(*in))
		return &metricsOutput{Body: m}, err
	})
}
