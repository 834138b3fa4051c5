package manifests

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxSets bounds a list of sets: each inventory may have a MiB.
const maxSets = 100

func noSet(set Set) error {
	return problem.Errorf(problem.NotFound, "see which there are: pipeops-runner applyset list AGENT -n "+set.Namespace, "there is no set %s", set)
}

// Get returns a set's inventory and the state of each of its objects.
func (a *Applier) Get(ctx context.Context, set Set) (runnerapi.ManifestSet, error) {
	r, err := a.reader(ctx, set)
	if err != nil {
		return runnerapi.ManifestSet{}, err
	}
	out := describe(r.inv)
	ready := r.inv.complete
	out.Objects = make([]runnerapi.SetObject, len(r.inv.entries))
	var group errgroup.Group
	group.SetLimit(2 * atATime)
	for n, ref := range r.inv.entries {
		group.Go(func() error {
			out.Objects[n] = r.state(ctx, ref)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return runnerapi.ManifestSet{}, err
	}
	for _, o := range out.Objects {
		ready = ready && o.State == runnerapi.ObjectReady
	}
	out.Ready = &ready
	return out, nil
}

// reader returns a run that changes nothing, so it does not lock the set.
func (a *Applier) reader(ctx context.Context, set Set) (*run, error) {
	api, err := a.client()
	if err != nil {
		return nil, err
	}
	r := &run{bounds: bounds{api: api, scope: a.scope}, applier: a, set: set}
	if err := r.managed(ctx, set.Namespace); err != nil {
		return nil, err
	}
	if r.inv, err = api.readInventory(ctx, set); err != nil {
		return nil, err
	}
	if r.inv.version == "" {
		return nil, noSet(set)
	}
	return r, nil
}

func (r *run) state(ctx context.Context, ref Ref) runnerapi.SetObject {
	i := &item{out: runnerapi.AppliedObject{ManifestRef: ref}}
	mapping, _, err := r.mapping(ref)
	if err == nil {
		i.mapping = mapping
		err = orAbsent(r.find(ctx, i))
	}
	if err != nil {
		return runnerapi.SetObject{ManifestRef: ref, State: runnerapi.ObjectUnknown, Message: asProblem(err).Detail}
	}
	if i.live != nil && i.live.GetAnnotations()[objectmeta.SetOf] != r.set.String() {
		return runnerapi.SetObject{ManifestRef: ref, State: runnerapi.ObjectUnknown, Message: "it " + owner(i.live)}
	}
	now := r.how(ctx, i.live)
	return runnerapi.SetObject{ManifestRef: ref, State: now.State, Message: now.Message, Diagnosis: now.Diagnosis, LastLines: now.LastLines}
}

func describe(inv inventory) runnerapi.ManifestSet {
	return runnerapi.ManifestSet{
		Namespace: inv.set.Namespace, Name: inv.set.Name, Count: len(inv.entries), Complete: inv.complete, AppliedAt: inv.at, AppliedBy: inv.by,
	}
}

// List returns the sets of a namespace, without the state of their objects.
func (a *Applier) List(ctx context.Context, namespace string) ([]runnerapi.ManifestSet, error) {
	api, err := a.client()
	if err != nil {
		return nil, err
	}
	b := &bounds{api: api, scope: a.scope}
	if err := b.managed(ctx, namespace); err != nil {
		return nil, err
	}
	opts := metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + inventoryBy, Limit: 10}
	sets := []runnerapi.ManifestSet{}
	for {
		list, err := api.objects.Resource(configMaps).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return nil, kubeproblem.From(err, "reading the sets of "+namespace)
		}
		for n := range list.Items {
			if inv, err := inventoryOf(&list.Items[n]); err == nil && len(sets) < maxSets {
				sets = append(sets, describe(inv))
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" || len(sets) == maxSets {
			return sets, nil
		}
	}
}

// Delete deletes what a set holds, and its inventory once everything is gone, including the pods.
// For what is left after goneWait, the result says what holds it. The inventory stays for that, and
// deleting the set again continues. Delete takes the options DryRun, Admit and Late. What was
// created under the set's name meanwhile stays: objects are deleted by their UIDs, and the
// inventory by its version.
func (a *Applier) Delete(ctx context.Context, set Set, o Options) (Result, error) {
	o.Prune = true
	r, leave, err := a.begin(ctx, set, o)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if r.inv.version == "" {
		return Result{}, noSet(set)
	}
	r.leftovers(ctx)
	if err := r.refusal(); err != nil {
		return Result{}, err
	}
	if o.DryRun {
		return r.result(), nil
	}
	if o.Late != nil {
		if late, err := o.Late(ctx); late || err != nil {
			return Result{}, err
		}
	}
	r.prune(ctx, workloadhealth.Propagation) // what makes pods stays until these are gone
	r.awaitGone(ctx, goneWait)
	if len(refused(r.left)) > 0 || slices.ContainsFunc(r.left, going) {
		r.next = r.inv
		r.settle(ctx)
	} else if err := r.api.drop(ctx, r.inv); err != nil {
		r.unsettled = asProblem(err)
	}
	return r.result(), nil
}
