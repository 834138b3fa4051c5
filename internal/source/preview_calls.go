package source

import (
	"context"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Previews implements backend.Sources.
func (k *Keeper) Previews(ctx context.Context, key runnerapi.Key) (runnerapi.SourcePreviewList, error) {
	s, err := k.Get(ctx, key)
	list := runnerapi.SourcePreviewList{Items: []runnerapi.SourcePreview{}}
	if err != nil || s.Status.Previews == nil {
		return list, err
	}
	list.CheckedAt, list.Error, list.Warning = s.Status.Previews.CheckedAt, s.Status.Previews.Error, s.Status.Previews.Warning
	for _, item := range s.Status.Previews.Items {
		if item.Namespace != "" {
			if err := k.describe(ctx, runnerapi.Key{Namespace: item.Namespace, Name: key.Name}, &item); err != nil {
				return list, err
			}
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

// describe adds what is known of the source of a preview.
func (k *Keeper) describe(ctx context.Context, key runnerapi.Key, item *runnerapi.SourcePreview) error {
	child, err := k.Get(ctx, key)
	switch {
	case problem.Is(err, problem.NotFound), problem.Is(err, runnerapi.CodeNamespaceNotManaged):
		return nil
	case err != nil:
		return err
	}
	item.Phase, item.SourceError = child.Status.Phase, child.Status.Error
	if child.Spec.Type != runnerapi.SourceApp {
		return nil
	}
	app, err := k.config.Apps.Get(ctx, runnerapi.Key{Namespace: key.Namespace, Name: child.AppName()})
	if err == nil && len(app.Status.PublicURLs) > 0 {
		item.URL = app.Status.PublicURLs[0]
	}
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// ApprovePreview implements backend.Sources.
func (k *Keeper) ApprovePreview(ctx context.Context, key runnerapi.Key, number int64, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return k.approve(ctx, key, opts, func(o *object, a *approvals) error {
		if err := o.mayApprove(number, approval.Commit); err != nil {
			return err
		}
		maps.DeleteFunc(a.Requests, func(number int64, _ string) bool { return o.request(number) == nil })
		if a.Requests == nil {
			a.Requests = map[int64]string{}
		}
		a.Requests[number] = approval.Commit
		return nil
	})
}

// request returns an open request of the source; nil if the agent has seen none of this number.
func (o *object) request(number int64) *runnerapi.SourcePreview {
	if o.Status.Previews == nil {
		return nil
	}
	items := o.Status.Previews.Items
	i := slices.IndexFunc(items, func(p runnerapi.SourcePreview) bool { return p.Number == number })
	if i < 0 {
		return nil
	}
	return &items[i]
}

func (o *object) mayApprove(number int64, commit string) error {
	r := o.request(number)
	switch {
	case o.Spec.Previews == nil:
		return problem.Errorf(problem.Conflict, "put it with previews first: pipeops-runner source set --previews", "source %s has no previews", o.key())
	case r == nil:
		return problem.Errorf(problem.NotFound, "see those that are open: pipeops-runner source previews list", "source %s has no open request %d that may have a preview", o.key(), number)
	case !r.Fork:
		return problem.Errorf(problem.Conflict, "see its state: pipeops-runner source previews list", "request %d is of no fork and needs no approval", number)
	case r.Commit != commit:
		return problem.Errorf(problem.Conflict, "look at this commit, and approve it", "request %d is at commit %s", number, r.Commit).WithField("commit")
	}
	return nil
}
