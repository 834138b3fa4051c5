package manifests

import (
	"bytes"
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// API is an Applier as the Runner API needs it.
type API struct{ *Applier }

var _ backend.Manifests = API{}

// Apply implements backend.Manifests. The set's objects are in memory until they are applied.
func (a API) Apply(ctx context.Context, set runnerapi.Key, text []byte, opts runnerapi.ApplyOptions) (Result, error) {
	hold, err := memory.Acquire(ctx, set.Namespace, "set "+set.String(), limits.Memory(text))
	if err != nil {
		return Result{}, err
	}
	r, leave, err := a.fromText(ctx, Set(set), text, opts)
	hold.Release()
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if !opts.DryRun {
		r.await(ctx)
	}
	return r.result(), nil
}

func (a API) fromText(ctx context.Context, set Set, text []byte, opts runnerapi.ApplyOptions) (*run, func(), error) {
	docs, err := Read(bytes.NewReader(text))
	if err != nil && len(docs.Objects) == 0 {
		return nil, nil, err
	}
	if opts.Read != nil {
		refs := make([]Ref, len(docs.Objects))
		for n, u := range docs.Objects {
			refs[n] = refOf(u)
		}
		opts.Read(refs)
	}
	o := options(opts)
	o.Where, o.Unread = docs.Where, err
	return a.start(ctx, set, docs.Objects, o)
}

func options(o runnerapi.ApplyOptions) Options {
	return Options{
		DryRun: o.DryRun, Prune: !o.NoPrune, Diff: o.Diff, Force: o.ForceConflicts, Wait: o.Wait, Admit: o.Admit, By: o.Caller.Runner, Late: o.Late,
	}
}

// Get implements backend.Manifests.
func (a API) Get(ctx context.Context, set runnerapi.Key) (runnerapi.ManifestSet, error) {
	return a.Applier.Get(ctx, Set(set))
}

// Delete implements backend.Manifests.
func (a API) Delete(ctx context.Context, set runnerapi.Key, opts runnerapi.ApplyOptions) (Result, error) {
	result, err := a.Applier.Delete(ctx, Set(set), options(opts))
	if opts.Read != nil {
		refs := make([]Ref, len(result.Objects))
		for n, o := range result.Objects {
			refs[n] = o.ManifestRef
		}
		opts.Read(refs)
	}
	return result, err
}
