package apply

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

var errBehind = errors.New("it has changed since it was read")

// ApplyOver applies desired to the cluster's object, unless the object has changed since have was
// read.
//
// A lease is not a fence. A leader that was held up, or whose request was, acts for a while beside
// the next leader and would roll pods back to an older spec. So a workload is written only after
// the App was found unchanged in the cluster, by a read later than that of have. If another leader
// has written the workload for a newer App, have is outdated and the API server refuses the write.
func (p *Applier) ApplyOver(ctx context.Context, owner *v1alpha1.App, desired, have client.Object) error {
	if workload.IsWorkload(desired) {
		if err := p.Current(ctx, owner); err != nil {
			return err
		}
		desired.SetResourceVersion(have.GetResourceVersion())
	}
	return p.Apply(ctx, desired, true)
}

// Current returns a conflict unless the App in the cluster equals the App here, as far as its pods
// are concerned.
func (p *Applier) Current(ctx context.Context, a *v1alpha1.App) error {
	now, err := p.store.GetLive(ctx, a.Key())
	if err != nil {
		return err
	}
	same := now.UID == a.UID && now.Generation == a.Generation && now.Status.Finished == a.Status.Finished
	for _, mark := range []string{objectmeta.RestartedAt, objectmeta.Contents} {
		same = same && now.Annotations[mark] == a.Annotations[mark]
	}
	if !same {
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "apps"}, a.Name, errBehind)
	}
	return nil
}
