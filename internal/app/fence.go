package app

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// behindFor is when an App is looked at again of which the cache has not heard yet how it is.
const behindFor = 100 * time.Millisecond

var errBehind = errors.New("it has changed since it was read")

// applyOver has the cluster's object be as desired, unless somebody has changed it since have was read.
//
// A lease is no fence: a leader that was held, or whose request was, goes on for a while beside the next one
// and would roll pods back to what the App was before. So a workload is written only after the
// App was found to be as it is known here, which was later than have was read: another
// leader that has written the workload for a newer App makes have outdated, and the API server
// refuses.
func (e *Engine) applyOver(ctx context.Context, owner *App, desired, have client.Object) error {
	if isWorkload(desired) {
		if err := e.current(ctx, owner); err != nil {
			return err
		}
		desired.SetResourceVersion(have.GetResourceVersion())
	}
	return e.apply(ctx, desired, true)
}

// current answers a conflict unless the App is in the cluster as it is here, as far as its pods are concerned.
func (e *Engine) current(ctx context.Context, a *App) error {
	now, err := e.getLive(ctx, a.key())
	if err != nil {
		return err
	}
	same := now.UID == a.UID && now.Generation == a.Generation
	for _, mark := range []string{managed.RestartedAt, managed.Contents} {
		same = same && now.Annotations[mark] == a.Annotations[mark]
	}
	if !same {
		return apierrors.NewConflict(schema.GroupResource{Group: GroupVersion.Group, Resource: "apps"}, a.Name, errBehind)
	}
	return nil
}
