package apply

import (
	"context"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
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
	for n, child := range children {
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
		want := child.DeepCopyObject().(client.Object)
		if err := p.Apply(ctx, child, true, client.DryRunAll); err != nil {
			return err
		}
		if err := kept(workload.Unpatched(a)[n], want, child); err != nil {
			return err
		}
	}
	return nil
}

// kept refuses a patch of which the cluster keeps only a part, such as a field of a feature that it
// lacks: the agent would correct the difference for ever.
func kept(unpatched, want, have client.Object) error {
	if !drifted(want, have) {
		return nil
	}
	others := differing(unpatched, have)
	lost := slices.DeleteFunc(differing(want, have), func(field string) bool { return slices.Contains(others, field) })
	if len(lost) == 0 {
		return nil
	}
	return problem.Errorf(problem.Invalid, "leave it out, or write it as the cluster does",
		"the cluster does not keep this of the patched object: %s", strings.Join(lost, ", ")).WithField("patches")
}
