package workloadhealth

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// makers asks why operators do not make the Secrets that pods wait for. Operators say it in events
// too, so the agent needs no right to their kinds, which the cluster may lack. Only an object of the
// Secret's own name is found, which is the default of most operators.
func (g Gatherer) makers(ctx context.Context, ev *diagnose.Evidence) error {
	names := diagnose.WantsMakers(ev)
	ev.Makers = make(map[string]diagnose.Maker, len(names))
	for _, name := range names {
		maker, err := g.warning(ctx, name, func(of corev1.ObjectReference) bool { return diagnose.Makes(of.APIVersion, of.Kind) })
		if err != nil {
			return err
		}
		if maker.Kind != "" {
			ev.Makers[name] = maker
		}
	}
	return nil
}

// warning returns the newest warning about an object of a name that is meant.
func (g Gatherer) warning(ctx context.Context, name string, meant func(corev1.ObjectReference) bool) (maker diagnose.Maker, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	of := client.MatchingFields{"involvedObject.name": name, "type": corev1.EventTypeWarning}
	var list corev1.EventList
	if err := g.Live.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxEvents), of); err != nil {
		return maker, fmt.Errorf("read the events about %s: %w", name, err)
	}
	g.listened(of, list.ResourceVersion, anyReason)
	var newest time.Time
	for i := range list.Items {
		e := &list.Items[i]
		if at := lastSeen(e); meant(e.InvolvedObject) && !at.Before(newest) {
			newest, maker = at, diagnose.Maker{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Message: e.Message}
		}
	}
	return maker, nil
}

// anyReason is for events whose reasons are another project's.
var anyReason []string
