package workloadhealth

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Checker determines the state of workloads that are not Apps. It reads them from the API server
// each time, and caches nothing.
type Checker struct {
	config        *rest.Config
	stabilization diagnose.Stabilization
	now           func() time.Time
	podsAlone     bool

	mu   sync.Mutex
	api  client.Client // made when it is used first
	pods corev1client.PodsGetter

	ports ports
}

// New returns a Checker. It makes no requests yet.
func New(rc *rest.Config, s diagnose.Stabilization) *Checker {
	return &Checker{config: rc, stabilization: s, now: time.Now}
}

// Report is how a workload is.
type Report struct {
	State     runnerapi.ObjectState
	Message   string // what it waits for, or a warning
	Diagnosis *runnerapi.Diagnosis
	LastLines []string // of the init container that the message names
}

// Check returns how an object is that was just read; false for one that neither runs pods, nor
// scales them, nor becomes a Secret.
func (c *Checker) Check(ctx context.Context, u *unstructured.Unstructured) (Report, bool, error) {
	if r, is := ofApp(u); is {
		return r, true, nil
	}
	if r, is := c.ofSecretSource(ctx, u); is {
		return r, true, nil
	}
	w, err := typed(u)
	if w == nil || err != nil {
		return Report{}, false, err
	}
	api, err := c.client()
	if err != nil {
		return Report{}, true, err
	}
	r, err := c.check(ctx, api, w)
	return r, true, err
}

func (c *Checker) check(ctx context.Context, api client.Client, w client.Object) (Report, error) {
	if d := standing(w); d != nil {
		return Report{State: runnerapi.ObjectFailed, Message: d.Message, Diagnosis: d}, nil
	}
	if !seen(w) { // its pods' reports are about an older spec
		return Report{State: runnerapi.ObjectInProgress, Message: "waits for Kubernetes to take its newest spec"}, nil
	}
	f, ev, err := c.find(ctx, api, w)
	if err != nil {
		return Report{}, err
	}
	if f.Diagnosis != nil {
		d := reworded(f.Diagnosis, w)
		if d.Cause.Retried() && ev.Job != nil && !ended(ev.Job) { // Kubernetes tries it again
			return Report{State: runnerapi.ObjectInProgress, Message: "waits for another try: " + d.Message}, nil
		}
		return Report{State: runnerapi.ObjectFailed, Message: d.Message, Diagnosis: d}, nil
	}
	waits := waitsFor(w, ev.Pods)
	switch {
	case f.Initializing != "": // all the rest waits for it too
		waits = "waits for " + f.Initializing
	case f.Unsettled:
		waits = cmp.Or(waits, "waits for "+f.Waiting)
	case f.Waiting != "" && waits != "": // which is more specific
		waits = "waits for " + f.Waiting
	}
	if waits != "" {
		return Report{State: runnerapi.ObjectInProgress, Message: waits, LastLines: f.LastLines}, nil
	}
	return Report{State: runnerapi.ObjectReady, Message: idlePort(&ev)}, nil
}

// idlePort returns the warning about a declared port at which nothing listens; empty for none.
func idlePort(ev *diagnose.Evidence) string {
	for _, try := range ev.Ports {
		if try.Idle != 0 {
			return fmt.Sprintf("warning: nothing listens at TCP port %d, which container %s declares; another port is open", try.Idle, ev.Container)
		}
	}
	return ""
}

// find gathers the evidence about a workload, and what it amounts to.
func (c *Checker) find(ctx context.Context, api client.Client, w client.Object) (diagnose.Finding, diagnose.Evidence, error) {
	g := Gatherer{Namespace: w.GetNamespace(), Name: pathOf(w), Objects: api, Live: api, Logs: Logs(c.pods)}
	if c.podsAlone {
		g.Live, g.Logs = blind{api}, nil
	}
	ev := diagnose.Evidence{Spec: runnerapi.AppSpec{Type: typeOf(w)}, Now: c.now(), Stabilization: c.stabilization}
	ev.Autoscaler, _ = w.(*autoscalingv2.HorizontalPodAutoscaler)
	all, err := g.workload(ctx, w)
	if err != nil {
		return diagnose.Finding{}, ev, err
	}
	if err := g.Add(ctx, all, &ev); err != nil {
		return diagnose.Finding{}, ev, err
	}
	if !c.podsAlone {
		ev.Ports, ev.Container = c.ports.of(ctx, &ev, c.now)
	}
	return diagnose.Find(ev), ev, nil
}
