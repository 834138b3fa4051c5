package console

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const (
	replicasPath = operatorapi.ConsolePath + "/replicas"
	// replicasRest is how long an open page leaves the control planes alone.
	replicasRest = 2 * time.Second
)

// replicasData is what the page Control planes shows.
type replicasData struct {
	Items    []peerlink.Replica
	Troubles []trouble
}

// controlPlanePages are the pages about the control planes and what they do by themselves.
type controlPlanePages struct{ *site }

func (p *controlPlanePages) replicas(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "replicas", page(r, "Control planes", replicasPath, operatorapi.ConsolePath+"/live/replicas"), p.readReplicas)
}

func (p *controlPlanePages) replicasLive(w http.ResponseWriter, r *http.Request) error {
	return follow(p.site, w, r, "replicas", paced(replicasRest, p.readReplicas))
}

func (p *controlPlanePages) readReplicas(ctx context.Context) (data replicasData, err error) {
	list, err := operatorapi.ListReplicas.Do(ctx, p.opts.API, struct{}{})
	data.Items = list.Items
	for _, replica := range list.Items {
		data.Troubles = append(data.Troubles, replicaTroubles(replica)...)
	}
	return data, err
}

// replicaTroubles returns what is wrong with a control plane.
func replicaTroubles(r peerlink.Replica) (list []trouble) {
	if r.State == peerlink.Unreachable {
		return []trouble{{
			Title: r.Title() + " is unreachable", Tone: "bad", Detail: web.Sentence(r.Reason),
			Fix: "make sure that it runs, and that the control planes reach each other at " + r.Peer + " (--advertise-peer)",
		}}
	}
	tone := "warn"
	if r.State == peerlink.NotReady {
		tone = "bad"
	}
	for _, check := range r.Checks {
		if !check.OK {
			list = append(list, trouble{Title: r.Title() + ": " + check.Name, Tone: tone, Detail: web.Sentence(check.Text)})
		}
	}
	return list
}
