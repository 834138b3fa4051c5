package doctor

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
)

// components looks at what `pipeops-agent component` has installed. The agent works without any of
// it, so nothing here is a failure.
func (c *cluster) components(ctx context.Context) []Finding {
	if len(c.Config.Namespaces) > 0 {
		return skipped("the agent is limited to some namespaces, and sees no components")
	}
	api, err := kubernetes.NewForConfig(c.restConfig())
	if err != nil {
		return failure(err, fixCluster)
	}
	states, err := components.States(ctx, api, workloadhealth.NewFromPods(c.restConfig(), app.StabilizationFor(c.Config.Stabilization)))
	if err != nil {
		return warning(fmt.Sprintf("the components cannot be read: %v", err), fixManifest)
	}
	if len(states) == 0 {
		return ok("none is installed; `pipeops-agent component plan` shows what the cluster lacks")
	}
	var findings []Finding
	for _, s := range states {
		name := s.Component + " " + s.Version
		switch {
		case s.Ready:
			findings = append(findings, ok(name+" is ready")...)
		case s.Cause == "":
			findings = append(findings, warning(fmt.Sprintf("%s: %s: %s", name, s.Workload, s.Message), cmp.Or(s.Fix, "wait; kubectl get pods shows it start"))...)
		default:
			findings = append(findings, warning(fmt.Sprintf("%s: %s: %s (%s)", name, s.Workload, s.Message, s.Cause), cmp.Or(s.Fix, "see its pods"))...)
		}
	}
	return findings
}
