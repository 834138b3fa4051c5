package operatorapi

import (
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Summary returns one line about an event.
func Summary(e announce.Event) string {
	if app, err := e.App(); err == nil {
		text := fmt.Sprintf("%s/%s %s", app.Namespace, app.Name, app.Pods())
		if app.Message != "" {
			text += ": " + strings.Join(strings.Fields(app.Message), " ")
		}
		return text
	}
	if route, err := e.Route(); err == nil {
		text := route.Host
		if route.Reason != "" {
			text += ": " + strings.Join(strings.Fields(route.Reason), " ")
		}
		return text
	}
	if alert, err := e.Alert(); err == nil {
		return alertText(alert)
	}
	if agent, err := e.Agent(); err == nil {
		text := fmt.Sprintf("%s, Kubernetes %s, %d node", agent.State, agent.KubernetesVersion, agent.Capacity.Nodes)
		if agent.Capacity.Nodes != 1 {
			text += "s"
		}
		if agent.Update != nil && agent.Update.To != "" {
			text += ", update " + UpdateDetail(agent.Update)
		}
		if n := len(agent.Clones); e.Type == announce.AgentCloned && n > 0 {
			c := agent.Clones[n-1]
			text = "its identity is in use twice: a copy " + WhereClone(c) + ", called " + c.Instance + ", comes from " + c.Address
		}
		return text
	}
	return ""
}

// alertText returns one line about an alert.
func alertText(a announce.AlertEvent) string {
	text := a.Name
	if a.Severity != "" {
		text += " (" + a.Severity + ")"
	}
	if a.Summary != "" {
		text += ": " + strings.Join(strings.Fields(a.Summary), " ")
	}
	return text
}

// UpdateState returns a short state of an agent's self-update; agent get has the reason.
func UpdateState(u *announce.AgentUpdate) string {
	switch {
	case u == nil:
		return "off"
	case u.To == "":
		return u.State
	}
	return u.State + " " + u.To
}

// UpdateDetail returns how an agent's update of itself stands, and why.
func UpdateDetail(u *announce.AgentUpdate) string {
	text := UpdateState(u)
	if u == nil {
		return text
	}
	if u.From != "" {
		text += " from " + u.From
	}
	if u.Reason != "" {
		text += ": " + u.Reason
	}
	return text
}

// WhereClone returns where a copy of an agent's identity is.
func WhereClone(c announce.Clone) string {
	if c.ClusterUID == "" {
		return "of the whole machine or cluster"
	}
	return "in cluster " + controlapi.ShortUID(c.ClusterUID)
}
