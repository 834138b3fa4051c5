package monitoring

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/alerts"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	maxAlertText   = 1000 // of a summary, a description or a label
	maxAlertLabels = 50
)

// activeAlerts is Prometheus' answer about active alerts:
// https://prometheus.io/docs/prometheus/latest/querying/api/#alerts
type activeAlerts struct {
	Data struct {
		Alerts []struct {
			ActiveAt    time.Time         `json:"activeAt"`
			State       string            `json:"state"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"alerts"`
	} `json:"data"`
}

// Alerts implements backend.Monitoring. It is Prometheus that is asked, not Alertmanager: it
// knows alerts that are pending, too, and silences hide none of them.
func (r *Reader) Alerts(ctx context.Context, namespace string) ([]runnerapi.Alert, error) {
	shown := map[string]bool{namespace: true}
	if namespace != "" {
		if ok, err := r.apps.Manages(ctx, namespace); err != nil || !ok {
			return nil, cmp.Or(err, error(runnerapi.NotManaged(namespace)))
		}
	}
	at, err := r.located(ctx, prometheus)
	if err != nil {
		return nil, err
	}
	var answer activeAlerts
	if err := r.getFrom(ctx, prometheus, at, "/api/v1/alerts", nil, &answer); err != nil {
		return nil, err
	}
	list := []runnerapi.Alert{}
	for _, a := range answer.Data.Alerts {
		alert := alertOf(a.State, a.ActiveAt, a.Labels, a.Annotations)
		known, asked := shown[alert.Namespace]
		if !asked && namespace == "" {
			// Those about nodes and volumes have the namespace of what measures them.
			if known = alert.Namespace == at.Namespace; !known {
				if known, err = r.apps.Manages(ctx, alert.Namespace); err != nil {
					return nil, err
				}
			}
			shown[alert.Namespace] = known
		}
		if known && (alert.State == runnerapi.AlertFiring || alert.State == runnerapi.AlertPending) {
			list = append(list, alert)
		}
	}
	slices.SortStableFunc(list, moreUrgent)
	return list, nil
}

func alertOf(state string, since time.Time, labels, annotations map[string]string) runnerapi.Alert {
	namespace, app := alerts.Subject(labels)
	a := runnerapi.Alert{
		Name: text(labels["alertname"]), State: state, Severity: text(labels["severity"]), ActiveAt: since.UTC(),
		Namespace: text(namespace), App: text(app),
		Summary: text(annotations["summary"]), Description: text(cmp.Or(annotations["description"], annotations["message"])),
		Labels: map[string]string{},
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name != "alertname" && len(a.Labels) < maxAlertLabels {
			a.Labels[text(name)] = text(labels[name])
		}
	}
	return a
}

func text(s string) string { return printable.Shorten(printable.Text(s), maxAlertText) }

func moreUrgent(a, b runnerapi.Alert) int {
	return cmp.Or(
		cmp.Compare(a.State, b.State), // firing, pending
		rank(a.Severity)-rank(b.Severity),
		a.ActiveAt.Compare(b.ActiveAt),
		cmp.Compare(a.Name, b.Name),
	)
}

// rank orders the usual severities; others come last.
func rank(severity string) int {
	usual := []string{"critical", "error", "warning", "info"}
	if i := slices.Index(usual, severity); i >= 0 {
		return i
	}
	return len(usual)
}
