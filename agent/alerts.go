package agent

import (
	"context"
	"errors"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/alerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// alertHandlers returns what takes alerts of the cluster's Alertmanager, if the cluster owner has
// set a token for them. Every replica takes them.
func (a *Agent) alertHandlers() map[string]http.Handler {
	if a.opts.Config.AlertsTokenFile == "" {
		return nil
	}
	return map[string]http.Handler{"POST " + alerts.Path: alerts.New(alerts.Config{
		TokenFile: a.opts.Config.AlertsTokenFile, Send: a.sendAlerts, Count: a.instruments.alerted, Now: a.now, Log: a.log,
	})}
}

// alerted counts alerts by outcome.
func (i *instruments) alerted(outcome string, n int) {
	i.alerts.WithLabelValues(outcome).Add(float64(n))
}

var errNotRegistered = errors.New("the agent is not registered")

// sendAlerts hands alerts to the control plane. They name no leader: any replica may send them, and
// their IDs make repeats harmless.
func (a *Agent) sendAlerts(ctx context.Context, list []alerts.Alert) error {
	p := a.parts.Load()
	if p == nil {
		return errNotRegistered
	}
	events := make([]controlapi.Event, len(list))
	for i, alert := range list {
		events[i] = controlapi.Event{ID: alert.ID(), Type: "alert." + string(alert.Status), Time: alert.At, Alert: &controlapi.AlertEvent{
			Fingerprint: alert.Fingerprint, Name: alert.Name, Severity: alert.Severity,
			Namespace: alert.Namespace, App: alert.App, Summary: alert.Summary, StartedAt: alert.StartedAt,
		}}
	}
	return p.control.Events(ctx, controlapi.EventsRequest{Events: events})
}
