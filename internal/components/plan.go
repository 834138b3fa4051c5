package components

import (
	"cmp"
	"fmt"
)

// Memory of all nodes, in bytes, below which monitoring is left out, or is small.
const (
	noMonitoring    = 1536 << 20
	smallMonitoring = 3 << 30
)

// Action is what a plan does about a component.
type Action string

// The actions.
const (
	Install Action = "install"
	Upgrade Action = "upgrade" // another version, or other values
	Keep    Action = "keep"    // it is as planned
	Skip    Action = "skip"
)

// Step is what a plan does about a component, and why.
type Step struct {
	Component string `json:"component"`
	Action    Action `json:"action"`
	Reason    string `json:"reason"`
	Namespace string `json:"namespace,omitempty"`

	releases []planned
}

// planned is a chart that is to be installed.
type planned struct {
	chart  Chart
	values map[string]any
	digest string
	has    *Installed
}

// Plan is what will be done, in this order.
type Plan struct {
	Steps []Step `json:"steps"`
	// Small is true if monitoring keeps less, because the nodes have little memory.
	Small bool `json:"small"`

	agentNamespace string
}

// NewPlan decides what to do about each component. It makes no requests.
func NewPlan(cluster Cluster, settings Settings) (Plan, error) {
	plan := Plan{Small: cluster.Memory < smallMonitoring, agentNamespace: cmp.Or(cluster.AgentNamespace, namespaceSystem)}
	for _, c := range table {
		step, err := plan.decide(c, cluster, settings)
		if err != nil {
			return Plan{}, err
		}
		plan.Steps = append(plan.Steps, step)
	}
	return plan, nil
}

func (p *Plan) decide(c Component, cluster Cluster, settings Settings) (Step, error) {
	setting, chosen := settings.Components[c.Name]
	mode := cmp.Or(setting.Mode, Auto)
	installed := cluster.Installed[c.Name]
	skip := func(format string, args ...any) (Step, error) {
		return Step{Component: c.Name, Action: Skip, Reason: fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case !chosen:
		return skip("it was not asked for")
	case mode == Never:
		return skip("its mode is never")
	case len(installed) > 0 || mode == Always:
	case c.present(cluster) != "":
		return skip("the cluster has %s", c.present(cluster))
	case c.Monitoring && cluster.Memory < noMonitoring:
		return skip("the nodes have %d MiB of memory, and monitoring needs %d; use the mode always to install it all the same",
			cluster.Memory>>20, noMonitoring>>20)
	}
	return p.act(c, setting, mode, installed)
}

// act compares what is installed with what is planned.
func (p *Plan) act(c Component, setting Setting, mode Mode, installed []Installed) (Step, error) {
	step := Step{Component: c.Name, Namespace: c.Namespace, Action: Keep, Reason: "it is as planned"}
	for _, chart := range c.Charts {
		values, err := values(chart.Name, p.Small && c.Monitoring, p.agentNamespace, setting.Values[chart.Name])
		if err != nil {
			return Step{}, err
		}
		r := planned{chart: chart, values: values, digest: digestOf(chart, values)}
		for i := range installed {
			if installed[i].Name == chart.Name {
				r.has = &installed[i]
			}
		}
		step.releases = append(step.releases, r)
		if r.isAsPlanned() {
			continue
		}
		switch {
		case r.has == nil:
			step.Action, step.Reason = Install, missing(mode)
		case step.Action == Keep && r.has.Status != Deployed:
			step.Action, step.Reason = Upgrade, "the last run ended as "+r.has.Status
		case step.Action == Keep:
			step.Action, step.Reason = Upgrade, "its version or its values have changed"
		}
	}
	return step, nil
}

func missing(mode Mode) string {
	if mode == Always {
		return "its mode is always"
	}
	return "the cluster lacks it"
}

// Deployed is the status of a release whose last run ended well.
const Deployed = "deployed"

func (r *planned) isAsPlanned() bool {
	return r.has != nil && r.has.Digest == r.digest && r.has.Status == Deployed
}
