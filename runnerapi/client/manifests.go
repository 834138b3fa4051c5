package client

import (
	"context"
	"errors"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Apply applies YAML documents, or JSON, as a set, and prunes what left it. It does not wait:
// Options.Wait is for callers of the API without this client; see WaitSet.
func (c *Client) Apply(ctx context.Context, set runnerapi.Key, manifests []byte, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error) {
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
	var result runnerapi.ApplyResult
	_, err := c.call(ctx, r, &result)
	return result, err
}

// GetSet returns the objects of a set and their state.
func (c *Client) GetSet(ctx context.Context, set runnerapi.Key) (runnerapi.ManifestSet, error) {
	var s runnerapi.ManifestSet
	_, err := c.call(ctx, objectRequest("get-set", set), &s)
	return s, err
}

// WaitSet reads a set every other second and reports it, until all its objects are ready, one of
// them has failed or ctx ends; it returns the newest state known.
func (c *Client) WaitSet(ctx context.Context, set runnerapi.Key, report func(runnerapi.ManifestSet)) (runnerapi.ManifestSet, error) {
	var newest runnerapi.ManifestSet
	for n := 0; ; n++ {
		now, err := c.GetSet(ctx, set)
		known := &runnerapi.Error{}
		switch {
		case err == nil:
			newest = now
			report(newest)
			if newest.Settled() {
				return newest, nil
			}
		case ctx.Err() != nil:
			return newest, ctx.Err()
		case !errors.As(err, &known) || !known.Passing() || known.Code == CodeUntrusted:
			return newest, err
		}
		if err := pause(ctx, min(n, 3)); err != nil {
			return newest, err
		}
	}
}

// ListSets reads the sets of a namespace, without their objects.
func (c *Client) ListSets(ctx context.Context, namespace string) ([]runnerapi.ManifestSet, error) {
	var list runnerapi.ManifestSetList
	_, err := c.call(ctx, newRequest("list-sets", namespace), &list)
	return list.Items, err
}

// DeleteSet deletes the objects of a set, and then the set. Objects in the result that have a state
// still exist, and the message says what holds them: call it again.
func (c *Client) DeleteSet(ctx context.Context, set runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.ApplyResult, error) {
	var result runnerapi.ApplyResult
	_, err := c.call(ctx, objectRequest("delete-set", set).write(opts), &result)
	return result, err
}
