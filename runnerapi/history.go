package runnerapi

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

// Limits of what components for monitoring answer.
const (
	MaxHistory       = params.MaxHistory // how far back
	MaxHistoryPoints = 1000              // of one series
	MaxHistorySeries = 200               // of one answer
)

// HistoryOptions select an App's metrics over time.
type HistoryOptions struct {
	Since time.Duration // until now; DefaultHistory if zero
	Step  time.Duration // between two points; by Since if zero
	ByPod bool          // one series for each pod, instead of their sum
}

// DefaultHistory is how far back metrics go, if the caller does not say.
const DefaultHistory = params.DefaultHistory

// Metrics of an App over time.
const (
	MetricCPU             = "cpu"
	MetricMemory          = "memory"
	MetricRestarts        = "restarts"
	MetricNetworkReceive  = "networkReceive"
	MetricNetworkTransmit = "networkTransmit"
	MetricRequests        = "requests"
)

// MetricsHistory is an App's metrics over time.
type MetricsHistory struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Start     time.Time      `json:"start,omitzero" doc:"Time of the first value of each series."`
	End       time.Time      `json:"end,omitzero" doc:"Time of the last value of each series."`
	Step      string         `json:"step" doc:"Time between two values." example:"6m0s"`
	Series    []MetricSeries `json:"series" nullable:"false" doc:"Metrics without a value in the whole range are left out."`
	Omitted   int            `json:"omitted,omitempty" doc:"Series that are left out, because there are more than 200."`
}

// MetricSeries is one metric of an App, or of one of its pods.
type MetricSeries struct {
	Metric string     `json:"metric" enum:"cpu,memory,restarts,networkReceive,networkTransmit,requests"`
	Unit   string     `json:"unit" enum:"cores,bytes,count,bytesPerSecond,requestsPerSecond"`
	Pod    string     `json:"pod,omitempty" doc:"Absent for the sum of all pods."`
	Values []*float64 `json:"values" nullable:"false" doc:"One for each step from start to end; null where there is none."`
}
