package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// made is the result of converge.
type made struct {
	workload client.Object        // nil while there is none
	objects  []string             // all that was made, as kind/name
	refusal  *runnerapi.Diagnosis // why the cluster does not follow the spec
}

// converge makes the App's objects match the spec. A problem that needs a change by a user is a
// refusal; any other error is retried.
func (c *Controller) converge(ctx context.Context, a *v1alpha1.App) (made, error) {
	if a.Spec.IsPaused() {
		have, err := c.ownWorkload(ctx, a)
		return made{workload: have}, err
	}
	if d, err := c.refuseSpec(ctx, a); d != nil || err != nil {
		have, lookErr := c.ownWorkload(ctx, a)
		return made{workload: have, refusal: d}, errors.Join(err, lookErr)
	}
	if a.IsStopped() {
		return c.holdBack(ctx, a)
	}
	w, err := c.convergeWorkload(ctx, a)
	if err != nil {
		refusal, err := refusalOf(err)
		if refusal != nil { // for a webhook that is down, the API server names no object
			refusal.Object = cmp.Or(refusal.Object, workload.KindPath(workload.KindOf(workload.Blank(a.Spec.Type)), a.Name))
		}
		have, lookErr := c.ownWorkload(ctx, a)
		return made{workload: have, refusal: refusal}, errors.Join(err, lookErr)
	}
	objects, err := c.convergeBesides(ctx, a)
	if err != nil {
		refusal, err := refusalOf(err)
		return made{workload: w, refusal: refusal}, err
	}
	if w != nil {
		objects = append(objects, workload.KindPath(workload.KindOf(w), w.GetName()))
	}
	return made{workload: w, objects: objects}, nil
}

func (c *Controller) convergeWorkload(ctx context.Context, a *v1alpha1.App) (client.Object, error) {
	switch a.Spec.Type {
	case runnerapi.TypeJob:
		return c.jobs.convergeJob(ctx, a)
	case runnerapi.TypePipeline:
		return c.jobs.convergePipeline(ctx, a)
	}
	w, err := workload.Of(a)
	if err != nil {
		return nil, err
	}
	if err := c.applier.Ensure(ctx, a, w); err != nil {
		return w, err
	}
	if s, ok := w.(*appsv1.StatefulSet); ok {
		return w, c.unblock(ctx, a, s)
	}
	return w, nil
}

// convergeBesides makes the objects that accompany the workload, and removes those that are no
// longer wanted.
func (c *Controller) convergeBesides(ctx context.Context, a *v1alpha1.App) (wanted []string, err error) {
	besides, err := workload.Besides(a)
	if err != nil {
		return nil, err
	}
	for _, o := range besides {
		if err := c.applier.Ensure(ctx, a, o); err != nil {
			return nil, err
		}
		wanted = append(wanted, workload.KindPath(workload.KindOf(o), o.GetName()))
	}
	for _, o := range workload.Possible(a) {
		if workload.IsWorkload(o) || slices.Contains(wanted, workload.KindPath(workload.KindOf(o), o.GetName())) {
			continue
		}
		err := c.store.Cached.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what belongs to App %s: %w", a.Key(), err)
		}
		if err := c.store.DeleteOwn(ctx, a, o); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// ownWorkload returns the App's workload, or nil if there is none.
func (c *Controller) ownWorkload(ctx context.Context, a *v1alpha1.App) (client.Object, error) {
	o := workload.Blank(a.Spec.Type)
	err := c.store.Cached.Get(ctx, client.ObjectKeyFromObject(a), o)
	if apierrors.IsNotFound(err) || err == nil && !workload.Owns(a, o) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the workload of App %s: %w", a.Key(), err)
	}
	return o, nil
}
