package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// shownHosts bounds the hosts of one finding.
const shownHosts = 5

// public asks the control plane's gateway which hosts it serves from this agent.
func (a *admission) public(ctx context.Context) []Finding {
	switch doc, _, err := a.cluster.readPolicy(ctx); {
	case !a.Config.EnableIngressSync:
		return ok("kept out: ENABLE_INGRESS_SYNC is off")
	case err == nil && doc.Public != nil && !*doc.Public:
		return ok("kept out by the policy (public: false)")
	case a.id == nil || a.Now().After(a.id.NotAfter()):
		return skipped("this agent has no valid identity yet")
	}
	client, failed := a.controlPlane(ctx)
	if failed != nil {
		return failed
	}
	defer client.Close()
	state, err := client.Routes(ctx)
	if err != nil {
		return failure(err, "ask the control plane's operator to look at its log")
	}
	found := publicHosts(state)
	if state.Gateway != "" {
		found = append(found, a.cluster.httpRoutes(ctx)...)
	}
	return found
}

// publicHosts returns what the gateway says of the agent's hosts.
func publicHosts(state controlapi.RoutesState) (found []Finding) {
	if state.Gateway == "" {
		return ok("the control plane has no gateway")
	}
	served, wrong := 0, 0
	for _, h := range state.Hosts {
		good := h.Served && h.Certificate != controlapi.CertificateFailed && h.Reach != controlapi.ReachFailed
		if h.Served {
			served++
		}
		if good {
			continue
		}
		if wrong++; wrong > shownHosts {
			continue
		}
		what := h.Host + " is not served"
		switch {
		case h.Served && h.Reach == controlapi.ReachFailed:
			what = h.Host + " gets no answer of its App"
		case h.Served:
			what = h.Host + " has no certificate"
		}
		found = append(found, warning(what, strings.TrimSpace(printable.Text(h.Reason)))...)
	}
	if wrong > shownHosts {
		found = append(found, warning(fmt.Sprintf("%d more hosts", wrong-shownHosts), "list them with `pipeops-runner routes AGENT`")...)
	}
	if wrong == 0 {
		return ok(fmt.Sprintf("the gateway of %s serves %d hosts", state.Gateway, served))
	}
	return found
}
