package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Manifests are the calls about sets of manifests, as kubectl apply --applyset has them.
type Manifests struct{ *core }

// Apply applies YAML documents, or JSON, as a set, and prunes what left it. It does not wait:
// ApplyOptions.Wait is for callers of the API without this client; see Wait.
func (m Manifests) Apply(ctx context.Context, set runnerapi.Key, manifests []byte, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error) {
	r := newRequest("apply-manifests").write(opts.WriteOptions)
	r.raw, r.media = manifests, "application/yaml"
	if r.query == nil {
		r.query = map[string]string{}
	}
	r.query["namespace"], r.query["set"] = set.Namespace, set.Name
	if opts.NoPrune {
		r.query["prune"] = "false"
	}
	if opts.Diff {
		r.query["diff"] = "true"
	}
	if opts.ForceConflicts {
		r.query["forceConflicts"] = "true"
	}
	return fetch[runnerapi.ApplyResult](ctx, m.core, r)
}

// Get returns the objects of a set and their state.
func (m Manifests) Get(ctx context.Context, set runnerapi.Key) (runnerapi.ManifestSet, error) {
	return fetch[runnerapi.ManifestSet](ctx, m.core, objectRequest("get-set", set))
}

// Wait reads a set every other second and reports it, until all its objects are ready, one of
// them has failed or ctx ends; it returns the newest state known.
func (m Manifests) Wait(ctx context.Context, set runnerapi.Key, report func(runnerapi.ManifestSet)) (runnerapi.ManifestSet, error) {
	return poll(ctx, func() (runnerapi.ManifestSet, error) { return m.Get(ctx, set) }, report, runnerapi.ManifestSet.Settled)
}

// List reads the sets of a namespace, without their objects.
func (m Manifests) List(ctx context.Context, namespace string) ([]runnerapi.ManifestSet, error) {
	return pages(ctx, m.core, newRequest("list-sets", namespace), func(l runnerapi.ManifestSetList) ([]runnerapi.ManifestSet, runnerapi.Page) { return l.Items, l.Page })
}

// Delete deletes the objects of a set, and then the set. Objects in the result that have a state
// still exist, and the message says what holds them: call it again.
func (m Manifests) Delete(ctx context.Context, set runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.ApplyResult, error) {
	return fetch[runnerapi.ApplyResult](ctx, m.core, objectRequest("delete-set", set).write(opts))
}
