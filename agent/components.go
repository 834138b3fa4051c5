package agent

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	workloads "github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
)

const (
	// componentsInterval is how often components are looked at.
	componentsInterval  = time.Minute
	maxComponentMessage = 500 // controlapi's bound is 512
)

// componentWatch reads how the cluster's components are, with rights that the agent has anyhow.
type componentWatch struct {
	api     kubernetes.Interface
	checker *workloads.Checker

	read time.Time
	last []controlapi.Component
}

// componentStates returns how the components are. An agent that is limited to some namespaces does
// not see them.
func (a *Agent) componentStates(ctx context.Context) []controlapi.Component {
	w := &a.componentWatch
	if len(a.opts.Config.Namespaces) > 0 || a.now().Sub(w.read) < componentsInterval {
		return w.last
	}
	w.read = a.now() // also if it fails: one attempt and one warning in each interval
	if w.api == nil {
		api, err := kubernetes.NewForConfig(kubeclient.Config(a.opts.Kubernetes))
		if err != nil {
			return nil // the agent's other clients have reported it
		}
		w.api = api
		w.checker = workloads.NewFromPods(a.opts.Kubernetes, app.StabilizationFor(a.opts.Config.Stabilization))
	}
	states, err := components.States(ctx, w.api, w.checker)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn().Err(err).Msg("failed to read the components; the heartbeat has their previous state")
		}
		return w.last
	}
	w.last = reported(states)
	return w.last
}

func reported(states []components.State) []controlapi.Component {
	states = states[:min(len(states), controlapi.MaxComponents)]
	all := make([]controlapi.Component, 0, len(states))
	for _, s := range states {
		all = append(all, controlapi.Component{
			Name: s.Component, Version: s.Version, Ready: s.Ready, Cause: s.Cause, Message: printable.Shorten(printable.Text(s.Message), maxComponentMessage),
		})
	}
	return all
}
