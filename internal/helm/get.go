package helm

import (
	"context"
	"errors"
	"time"

	"helm.sh/helm/v4/pkg/release/common"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Get implements backend.Releases.
func (r *Releases) Get(ctx context.Context, key runnerapi.Key) (v runnerapi.Release, err error) {
	for range 3 { // a command that ends may remove what is being read
		if v, err = r.getRelease(ctx, key); !errors.Is(err, errRemoved) {
			break
		}
	}
	return v, err
}

// List implements backend.Releases. It holds one revision in memory at a time.
func (r *Releases) List(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
	c, err := r.enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	all, err := records(ctx, c, namespace, "")
	if err != nil {
		return nil, err
	}
	var list []runnerapi.Release
	for begin := 0; begin < len(all); {
		end := begin
		for end < len(all) && all[end].name == all[begin].name {
			end++
		}
		v, err := r.shown(ctx, c, namespace, all[begin], all[begin:end])
		begin = end
		if errors.Is(err, errRemoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (r *Releases) getRelease(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	c, err := r.enter(ctx, key.Namespace)
	if err != nil {
		return runnerapi.Release{}, err
	}
	// The lock first: the history then has the result of a command that has just ended.
	h, _, err := r.readLock(ctx, c, key)
	if err != nil {
		return runnerapi.Release{}, err
	}
	history, err := records(ctx, c, key.Namespace, key.Name)
	if err == nil && h == nil && len(history) > 0 && history[0].pending() { // or it has begun since
		h, _, err = r.readLock(ctx, c, key)
	}
	if err != nil {
		return runnerapi.Release{}, err
	}
	if len(history) == 0 {
		return r.coming(key, h)
	}
	d, err := r.driverFor(ctx, key.Namespace, readingOf(ctx, key.Namespace))
	if err != nil {
		return runnerapi.Release{}, err
	}
	rel, err := one(d, history[0])
	if err != nil {
		return runnerapi.Release{}, err
	}
	v := seen(view(rel, ours(history)), history[0], h)
	objects, err := releaseObjects(rel)
	if err != nil {
		return v, nil //nolint:nilerr // a foreign release, which Helm could read
	}
	for _, o := range objects {
		v.Objects = append(v.Objects, described(o, ""))
	}
	if history[0].status != common.StatusUninstalled {
		err = r.describeState(ctx, key.Namespace, objects, v.Objects)
	}
	if err == nil && len(history) > 1 && rolledBack(rel, history[1]) {
		v.Undone, err = undoneOf(d, history[1])
	}
	return v, err
}

// coming returns a release that consists only of a command, before or after its revisions.
func (r *Releases) coming(key runnerapi.Key, h *holding) (runnerapi.Release, error) {
	if h == nil {
		return runnerapi.Release{}, unknown(key)
	}
	op, status := h.ReleaseOperation, runnerapi.ReleaseStatus("unknown")
	if op.Command == "delete-release" {
		status = runnerapi.ReleaseUninstalling
	}
	return runnerapi.Release{
		Namespace: key.Namespace, Name: key.Name, Status: status, Managed: true, UpdatedAt: op.StartedAt, Operation: &op,
	}, nil
}

// seen adds the running command. A pending revision without one is shown as failed.
func seen(v runnerapi.Release, newest record, h *holding) runnerapi.Release {
	switch {
	case h != nil:
		op := h.ReleaseOperation
		v.Operation = &op
	case newest.pending() && newest.abandoned(time.Now()):
		v.Status, v.Description = runnerapi.ReleaseFailed, brokeOff
	}
	return v
}

// History implements backend.Releases.
func (r *Releases) History(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
	c, err := r.enter(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	history, err := records(ctx, c, key.Namespace, key.Name)
	if err != nil {
		return nil, err
	}
	list := make([]runnerapi.Release, 0, len(history))
	for _, at := range history {
		v, err := r.shown(ctx, c, key.Namespace, at, history)
		if errors.Is(err, errRemoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, unknown(key)
	}
	return list, nil
}

// shown returns a revision for a list.
func (r *Releases) shown(ctx context.Context, c *clients, namespace string, at record, history []record) (runnerapi.Release, error) {
	if err := ctx.Err(); err != nil {
		return runnerapi.Release{}, err
	}
	d, err := r.driverFor(ctx, namespace, readingOf(ctx, namespace))
	if err != nil {
		return runnerapi.Release{}, err
	}
	rel, err := one(d, at)
	if p := (*problem.Error)(nil); errors.As(err, &p) && p.Code == problem.TooLarge { // the others are shown
		return unread(namespace, at, ours(history), p), nil
	}
	if err != nil {
		return runnerapi.Release{}, err
	}
	v := view(rel, ours(history))
	if at.version != history[0].version || !at.pending() {
		return v, nil
	}
	h, _, err := r.readLock(ctx, c, runnerapi.Key{Namespace: namespace, Name: at.name})
	return seen(v, at, h), err
}

// unread returns what the labels say of a revision that is too large to be read.
func unread(namespace string, at record, managed bool, why *problem.Error) runnerapi.Release {
	return runnerapi.Release{
		Namespace: namespace, Name: at.name, Revision: at.version, Status: runnerapi.ReleaseStatus(at.status),
		Description: clip(why.Error()), UpdatedAt: at.updated, Managed: managed,
	}
}

// Wait implements backend.Releases.
func (r *Releases) Wait(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	for {
		release, err := r.Get(ctx, key)
		if err != nil || !release.Busy() {
			return release, err
		}
		if !retry.Wait(ctx, waitStep) {
			return release, nil
		}
	}
}
