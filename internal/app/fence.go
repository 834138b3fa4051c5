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

// behindFor is the delay before another look at an App whose newest version the cache lacks.
const behindFor = 100 * time.Millisecond

var errBehind = errors.New("it has changed since it was read")

// applyOver applies desired to the cluster's object, unless the object has changed since have was
// read.
//
// A lease is no fence. A leader that was held up, or whose request was, acts for a while beside the
// next leader and would roll pods back to an older spec. So a workload is written only after the
// App was found unchanged in the cluster, by a read later than that of have. If another leader has
// written the workload for a newer App, have is outdated and the API server refuses the write.
func (e *Engine) applyOver(ctx context.Context, owner *App, desired, have client.Object) error {
	if isWorkload(desired) {
		if err := e.current(ctx, owner); err != nil {
			return err
		}
		desired.SetResourceVersion(have.GetResourceVersion())
	}
	return e.apply(ctx, desired, true)
}

// current returns a conflict unless the App in the cluster equals the App here, as far as its pods
// are concerned.
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
