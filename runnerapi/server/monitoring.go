package server

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
)

type (
	metricsHistoryOutput struct{ Body runnerapi.MetricsHistory }
	alertListOutput      struct{ Body runnerapi.AlertList }
	costOutput           struct{ Body runnerapi.CostList }
)

// monitoringCalls are the calls that components of the cluster answer.
type monitoringCalls struct {
	*calls
	monitoring backend.Monitoring
}

func (s *monitoringCalls) routes() {
	register(s.calls, alsoRefuses(operation("get-app-metrics-history", "Apps", "Get an App's metrics over time",
		"CPU, memory, restarts, network and, where the App counts them, requests: by Prometheus, also of pods that are gone. "+
			"Without the component prometheus: 501. See docs/cluster-owner/components.md.", 0), http.StatusNotImplemented), s.metricsHistory)
	register(s.calls, alsoRefuses(operation("list-alerts", "Cluster", "List the active alerts",
		"Those about the cluster, and about the namespaces that the agent manages and the customer's policy lets the Runner see. "+
			"Without the component prometheus: 501.", 0), http.StatusNotImplemented),
		func(ctx context.Context, _ *struct{}) (*alertListOutput, error) { return s.listAlerts(ctx, "") })
	register(s.calls, alsoRefuses(operation("list-namespace-alerts", "Cluster", "List the active alerts of a namespace",
		"Those whose labels name the namespace. Without the component prometheus: 501.", 0), http.StatusNotImplemented),
		func(ctx context.Context, in *params.Namespace) (*alertListOutput, error) {
			return s.listAlerts(ctx, in.Namespace)
		})
	register(s.calls, alsoRefuses(operation("get-cost", "Cluster", "Get the costs",
		"What the namespaces that the agent manages, or the Apps in them, have cost, by OpenCost: those that the customer's policy lets the Runner see. "+
			"Without the component opencost: 501.", 0), http.StatusNotImplemented),
		func(ctx context.Context, in *params.Cost) (*costOutput, error) { return s.cost(ctx, "", *in) })
	register(s.calls, alsoRefuses(operation("get-namespace-cost", "Cluster", "Get the costs of a namespace",
		"What it, or the Apps in it, have cost, by OpenCost. Without the component opencost: 501.", 0), http.StatusNotImplemented), s.namespaceCost)
}

func (s *monitoringCalls) metricsHistory(ctx context.Context, in *struct {
	params.App
	params.MetricsHistory
}) (*metricsHistoryOutput, error) {
	since, err := historySince(in.Since)
	if err != nil {
		return nil, err
	}
	step, err := historyStep(in.Step, since)
	if err != nil {
		return nil, err
	}
	history, err := s.monitoring.MetricsHistory(ctx, appKey(in.App), runnerapi.HistoryOptions{Since: since, Step: step, ByPod: in.By == "pod"})
	history.Series = notNil(history.Series)
	return &metricsHistoryOutput{Body: history}, err
}

func (s *monitoringCalls) listAlerts(ctx context.Context, namespace string) (*alertListOutput, error) {
	items, err := s.monitoring.Alerts(ctx, namespace)
	items = guard.Seen(ctx, s.guard, items, func(a runnerapi.Alert) string { return a.Namespace })
	shown := items[:min(len(items), runnerapi.MaxAlerts)]
	return &alertListOutput{Body: runnerapi.AlertList{Items: notNil(shown), Omitted: len(items) - len(shown)}}, err
}

func (s *monitoringCalls) namespaceCost(ctx context.Context, in *struct {
	params.Namespace
	params.Cost
}) (*costOutput, error) {
	return s.cost(ctx, in.Namespace.Namespace, in.Cost)
}

func (s *monitoringCalls) cost(ctx context.Context, namespace string, in params.Cost) (*costOutput, error) {
	since, err := historySince(in.Since)
	if err != nil {
		return nil, err
	}
	list, err := s.monitoring.Cost(ctx, runnerapi.CostOptions{Namespace: namespace, Since: since, ByApp: in.By == "app"})
	list.Items = notNil(guard.Seen(ctx, s.guard, list.Items, func(c runnerapi.Cost) string { return c.Namespace }))
	return &costOutput{Body: list}, err
}

// historySince returns how far back a call goes.
func historySince(text string) (time.Duration, error) {
	since, err := parseSince(text, time.Now())
	switch {
	case err != nil:
		return 0, problem.Errorf(problem.Invalid, "give a duration such as 24h or a time in RFC 3339", "%v", err).WithField("query.since")
	case since > runnerapi.MaxHistory:
		return 0, problem.Errorf(problem.Invalid, "ask for at most 720h", "since is more than 30 days ago").WithField("query.since")
	case since == 0:
		return runnerapi.DefaultHistory, nil
	}
	return since, nil
}

const (
	minStep = 15 * time.Second // Prometheus scrapes no more often
	// usualPoints is how many values a series has if the caller gives no step.
	usualPoints = 240
)

// historyStep returns the time between two values.
func historyStep(text string, since time.Duration) (time.Duration, error) {
	if text == "" {
		return max(minStep, (since/usualPoints + minStep - 1).Truncate(minStep)), nil
	}
	step, err := time.ParseDuration(text)
	invalid := func(format string, args ...any) error {
		return problem.Errorf(problem.Invalid, "leave step out, or give a duration such as 5m", format, args...).WithField("query.step")
	}
	switch {
	case err != nil || step%time.Second != 0:
		return 0, invalid("step is not a duration in whole seconds")
	case step < minStep:
		return 0, invalid("step is less than 15s")
	case since/step >= runnerapi.MaxHistoryPoints:
		return 0, invalid("the range has more than %d steps", runnerapi.MaxHistoryPoints)
	}
	return step, nil
}
