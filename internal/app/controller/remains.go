package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// toldOfRemains bounds the pods that a status names.
const toldOfRemains = 3

// remains is what keeps a deleted App from being gone.
type remains struct {
	waits   []string      // what has to happen; empty when nothing is left
	recheck time.Duration // when time alone can change it; 0 for never
}

// remainsOf returns what is left of a deleted App: its pods, or the objects that go before these
// do.
func (c *Controller) remainsOf(ctx context.Context, pods []*corev1.Pod, objects []client.Object) remains {
	if len(pods) == 0 {
		var r remains
		for _, o := range objects {
			r.waits = append(r.waits, goingObject(o))
		}
		return r
	}
	all, now := make([]diagnose.Remaining, 0, len(pods)), c.now()
	for _, pod := range pods {
		all = append(all, diagnose.Remains(pod, c.nodeThatRemains(ctx, pod, now), now))
	}
	slices.SortFunc(all, func(a, b diagnose.Remaining) int {
		switch { // first what does not go by itself
		case a.Stuck == b.Stuck:
			return cmp.Compare(a.Waits, b.Waits)
		case a.Stuck:
			return -1
		}
		return 1
	})
	return summed(all)
}

func summed(all []diagnose.Remaining) (r remains) {
	for i, one := range all {
		if one.Recheck > 0 && (r.recheck == 0 || one.Recheck < r.recheck) {
			r.recheck = one.Recheck
		}
		if i < toldOfRemains {
			r.waits = append(r.waits, one.Waits)
		}
	}
	if more := len(all) - toldOfRemains; more > 0 {
		r.waits = append(r.waits, fmt.Sprintf("%d more pods", more))
	}
	return r
}

// nodeThatRemains returns the node of a pod where what keeps the pod hangs on it, nil for one that
// is gone. One that cannot be read is taken for one that is there.
func (c *Controller) nodeThatRemains(ctx context.Context, pod *corev1.Pod, now time.Time) *corev1.Node {
	if !diagnose.RemainsByNode(pod, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var list corev1.NodeList // a list of one: the agent may list nodes, and not get one
	err := c.store.Live.List(ctx, &list, client.MatchingFields{"metadata.name": pod.Spec.NodeName})
	switch {
	case err != nil:
		return &corev1.Node{Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
	case len(list.Items) == 0:
		return nil
	}
	return &list.Items[0]
}

const nodeTimeout = 5 * time.Second

func goingObject(o client.Object) string {
	what := workload.KindPath(workload.KindOf(o), o.GetName()) + " to go"
	if held := o.GetFinalizers(); len(held) > 0 && !o.GetDeletionTimestamp().IsZero() {
		what += ", which finalizer " + strings.Join(held, ", ") + " holds"
	}
	return what
}

// tellRemains writes into a deleted App's status what keeps it, and schedules another look if time
// alone can change that.
func (c *Controller) tellRemains(ctx context.Context, a *v1alpha1.App, r remains) (reconcile.Result, error) {
	s := *a.Status.DeepCopy()
	s.Phase, s.Diagnosis = runnerapi.PhaseDeleting, nil
	s.WaitingFor, s.LastLines = v1alpha1.Bounded(strings.Join(r.waits, "; ")), nil
	s.ObservedGeneration, s.ObservedRestart = a.Generation, a.RestartedAt()
	if s.Phase != a.Status.Phase || s.LastTransition == nil {
		now := c.now().UTC().Truncate(time.Second)
		s.LastTransition = &now
	}
	if err := c.writeStatus(ctx, a, s); err != nil && !apierrors.IsForbidden(err) {
		return again(err)
	}
	return reconcile.Result{RequeueAfter: r.recheck}, nil
}
