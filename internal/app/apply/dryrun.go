package apply

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// RefuseOrAdopt checks the objects that already have the names of a new App's objects.
func (p *Applier) RefuseOrAdopt(ctx context.Context, a *v1alpha1.App, opts runnerapi.WriteOptions) error {
	if opts.Adopt {
		return p.Adopt(ctx, a)
	}
	children, err := workload.Children(a)
	if err != nil {
		return err
	}
	for _, child := range children {
		if _, err := p.RefuseForeign(ctx, a, child); err != nil {
			return err
		}
	}
	return nil
}

// DryRun lets the cluster check the App's objects: quota, admission, pod security.
func (p *Applier) DryRun(ctx context.Context, a *v1alpha1.App) error {
	if a.UID == "" { // a dry run of a creation need not set one
		a.UID = types.UID("00000000-0000-0000-0000-000000000000")
	}
	children, err := workload.Children(a)
	if err != nil {
		return err
	}
	for _, child := range children {
		if _, ran := child.(*batchv1.Job); ran { // an existing Job cannot be changed, only replaced: check it under another name
			child.SetName("")
			child.SetGenerateName(a.Name + "-")
			if err := p.store.Live.Create(ctx, child, client.DryRunAll, client.FieldOwner(objectmeta.FieldManager)); err != nil {
				return err
			}
			continue
		}
		tried, err := p.triedAdoption(ctx, a, child)
		if err != nil {
			return err
		}
		if tried {
			continue
		}
		if err := p.Apply(ctx, child, true, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}
