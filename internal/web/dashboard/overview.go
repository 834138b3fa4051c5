package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxTroubles is how many troubles the overview shows. The page Apps has the others.
const maxTroubles = 12

// maxSquares is how many Apps the overview shows as squares. The page Apps has the others.
const maxSquares = 500

// overviewData is what the first page shows: what is wrong comes first.
type overviewData struct {
	Wrong    []trouble
	Hidden   int // troubles that are not shown
	Agent    agentState
	Policy   policyState
	States   []stateCount
	Apps     int
	Squares  []web.SquareGroup
	MoreApps int // that have no square
	Deploys  []deploy
	Facts    kube.Facts
	Waiting  []runnerapi.Approval
	Unread   []*problem.Error
	HasApps  bool
	HasFacts bool
}

// stateCount is a state with its number of Apps.
type stateCount struct {
	State string
	Count int
}

// overviewPage is the first page.
type overviewPage struct {
	*site
	policy *policyPages
}

func (d *overviewPage) overview() view[overviewData] {
	return view[overviewData]{
		site: d.site, name: "overview", page: titled("Overview", "/"),
		read: func(*http.Request) func(context.Context) (overviewData, error) { return d.readOverview },
		watch: func(*http.Request) []watched {
			return []watched{allApps(), inNamespace(&corev1.ConfigMapList{}, d.opts.Namespace), inNamespace(&corev1.PodList{}, d.opts.Namespace)}
		},
	}
}

// readOverview reads all parts at the same time. A part that cannot be read does not hide the
// others, unless the cluster itself does not respond.
func (d *overviewPage) readOverview(ctx context.Context) (o overviewData, _ error) {
	var apps []runnerapi.App
	var factsErr, appsErr, waitErr, deploysErr error
	var all sync.WaitGroup
	all.Go(func() { o.Agent = d.agent(ctx) })
	all.Go(func() { o.Policy = d.policy.read(ctx) })
	all.Go(func() { o.Facts, factsErr = d.cluster.facts.Facts(ctx) })
	all.Go(func() {
		var stored []v1alpha1.App
		stored, appsErr = d.storedApps(ctx)
		apps = wireApps(stored)
		o.Deploys, deploysErr = d.readDeploys(ctx, stored)
	})
	all.Go(func() { o.Waiting, waitErr = d.cluster.approvals.List(ctx) })
	all.Wait()
	if away(factsErr) && away(appsErr) {
		return o, factsErr
	}
	for _, p := range []*problem.Error{o.Agent.Problem, o.Policy.Problem, unread(factsErr, "reading the nodes"), unread(appsErr, "listing Apps"), unread(deploysErr, "reading revisions"), unread(waitErr, "reading requests for approvals")} {
		if p != nil {
			o.Unread = append(o.Unread, p)
		}
	}
	o.HasFacts, o.HasApps, o.Apps = factsErr == nil, appsErr == nil, len(apps)
	o.Waiting = slices.DeleteFunc(o.Waiting, func(a runnerapi.Approval) bool { return a.Approved != nil })
	o.countStates(apps)
	o.addSquares(apps)
	o.Wrong = slices.Concat(o.Agent.Wrong, o.Policy.wrong(), nodeTroubles(o.Facts), appTroubles(apps))
	o.Hidden = max(len(o.Wrong)-maxTroubles, 0)
	o.Wrong = o.Wrong[:len(o.Wrong)-o.Hidden]
	return o, nil
}

// countStates counts the Apps by state, what is wrong first.
func (o *overviewData) countStates(apps []runnerapi.App) {
	for _, state := range states() {
		n := 0
		for _, a := range apps {
			if a.State() == state {
				n++
			}
		}
		if n > 0 {
			o.States = append(o.States, stateCount{state, n})
		}
	}
}

// addSquares has a square for each App, in the order of the states.
func (o *overviewData) addSquares(apps []runnerapi.App) {
	var squares []web.Square
	for _, state := range states() {
		for _, a := range apps {
			if a.State() == state {
				squares = append(squares, web.Square{Href: pathOf(a), Text: a.Namespace + "/" + a.Name + ": " + state, Tone: web.Tone(state)})
			}
		}
	}
	o.MoreApps = max(len(squares)-maxSquares, 0)
	o.Squares = web.GroupSquares(squares[:len(squares)-o.MoreApps])
}

func nodeTroubles(f kube.Facts) []trouble {
	if down := f.Nodes.Total - f.Nodes.Ready; down > 0 {
		return []trouble{{Title: "Nodes are not ready", Detail: fmt.Sprintf("%d of %d nodes are not ready.", down, f.Nodes.Total), Href: "/nodes", Tone: "bad"}}
	}
	return nil
}

// appTroubles returns the Apps with a diagnosis: those that do not serve come first.
func appTroubles(apps []runnerapi.App) (all []trouble) {
	for _, phase := range []runnerapi.Phase{runnerapi.PhaseFailed, runnerapi.PhaseDegraded, runnerapi.PhaseProgressing, runnerapi.PhaseDeleting} {
		for _, a := range apps {
			if g := a.Status.Diagnosis; g != nil && a.Status.Phase == phase {
				tone := "warn"
				if phase == runnerapi.PhaseFailed {
					tone = "bad"
				}
				all = append(all, trouble{Title: a.Namespace + "/" + a.Name + ": " + string(g.Cause), Detail: web.Sentence(g.Message), Fix: g.Fix, Href: pathOf(a), Tone: tone})
			}
		}
	}
	return all
}
