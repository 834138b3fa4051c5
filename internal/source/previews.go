package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Bounds of the requests in a source's status: those that were opened last. Others can open as many
// requests of forks as they like, so these have a bound of their own.
const maxRequests, maxForks = 100, 50

// previewPause is the delay before a preview is tried again after a temporary error.
const previewPause = 10 * time.Second

// previews keeps a preview for each open pull request of the sources that have previews: a
// namespace with a source of its own, which is followed as any other. All is done in the name of
// the Runner that put the source, and the policy is asked about the namespace of the preview.
type previews struct {
	namespaces PreviewNamespaces
	applier    *applier
	cluster    *cluster
	reporter   *reporter
	journal    *journal
	// provider reports whether the control plane has an identity provider for visitors, once that
	// is known. Nil is for none.
	provider func() (has, known bool)
	now      func() time.Time
	log      zerolog.Logger
}

// reconcile makes and deletes previews of a source, when that is due. It returns when to look
// again; 0 for not before the source changes.
func (p *previews) reconcile(ctx context.Context, o *object) (*runnerapi.SourcePreviewsStatus, time.Duration) {
	before := o.Status.Previews
	switch {
	case o.Spec.Previews == nil && before == nil, o.Spec.Suspend, p.reporter.revoked.has(o.caller().Runner), o.Status.Suspension != nil && o.suspendedAsPut():
		return before, 0
	case o.Spec.Previews == nil:
		if left := p.gone(ctx, o.key()); left > 0 {
			return before, left
		}
		return nil, 0
	case before == nil:
		before = &runnerapi.SourcePreviewsStatus{}
	}
	every, err := o.Spec.Every()
	if err != nil { // not written by this agent
		every = runnerapi.DefaultSourceInterval
	}
	if left := p.notBefore(o, *before, every); left > 0 {
		return before, left
	}
	s := &runnerapi.SourcePreviewsStatus{Observed: o.wanted(), CheckedAt: p.stamp(p.now()), Items: before.Items}
	requests, err := p.requests(ctx, o)
	if err != nil {
		s.Error = asSourceError(err)
		if isNew := date(s.Error, before.Error, s.CheckedAt); isNew {
			p.log.Warn().Err(err).Stringer("source", o.key()).Msg("failed to list the pull requests of a source; its previews stay as they are")
		}
		return s, min(every, max(soon, pauseAfter(err, 1)))
	}
	s.Items = p.plan(o, before.Items, requests)
	_, s.Warning = p.signIn(o, true)
	again := p.apply(ctx, o, s.Items)
	next := p.untilExpiry(s.Items, spread(every))
	if again {
		next = min(next, previewPause)
	}
	return s, next
}

// wanted returns what the status of previews is the answer to.
func (o *object) wanted() string {
	return fmt.Sprint(o.Generation, " ", o.sync(), " ", o.Annotations[objectmeta.Look], " ", o.Annotations[objectmeta.Approvals], " ", o.caller())
}

func (p *previews) stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// notBefore returns how long the forge need not be asked again; 0 for now.
func (p *previews) notBefore(o *object, s runnerapi.SourcePreviewsStatus, every time.Duration) time.Duration {
	at, err := time.Parse(time.RFC3339, s.CheckedAt)
	if err != nil || s.Observed != o.wanted() {
		return 0
	}
	left := time.Duration(float64(every)*(1-jitter)) - p.now().Sub(at)
	for _, item := range s.Items {
		if e := item.Error; e != nil && temporary(*e) {
			left = min(left, previewPause-p.now().Sub(at))
		}
	}
	return max(min(p.untilExpiry(s.Items, left), every), 0)
}

// untilExpiry returns when the first preview expires, or that time if it is earlier.
func (p *previews) untilExpiry(items []runnerapi.SourcePreview, left time.Duration) time.Duration {
	for _, item := range items {
		if at, err := time.Parse(time.RFC3339, item.ExpiresAt); err == nil && item.State == runnerapi.PreviewActive {
			left = min(left, at.Sub(p.now()))
		}
	}
	return left
}

// requests returns the open requests that may have a preview.
func (p *previews) requests(ctx context.Context, o *object) ([]forge.Request, error) {
	if p.namespaces == nil {
		return nil, runnerapi.NotSupported("leave out previews", "this agent makes no previews")
	}
	if err := p.applier.allowed(o, putIntent); err != nil {
		return nil, err
	}
	to, err := p.reporter.destination(ctx, o)
	if err != nil {
		return nil, err
	}
	hold, err := memory.Acquire(ctx, o.Namespace, "pull requests of source "+o.key().String(), forge.RequestsMemory)
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	all, err := forge.Requests(ctx, to.remote, to.repository, to.credentials)
	if label := o.Spec.Previews.Label; label != "" {
		all = slices.DeleteFunc(all, func(r forge.Request) bool { return !slices.Contains(r.Labels, label) })
	}
	return all, err
}

// plan returns what is to become of each request.
func (p *previews) plan(o *object, before []runnerapi.SourcePreview, requests []forge.Request) []runnerapi.SourcePreview {
	slices.SortFunc(requests, func(a, b forge.Request) int { return cmp.Compare(b.Number, a.Number) })
	approved, now := o.approvals().Requests, p.now()
	var own, forks []runnerapi.SourcePreview
	for _, r := range requests {
		item := runnerapi.SourcePreview{Number: r.Number, Branch: r.Branch, Commit: r.Commit, Fork: r.Fork, Since: p.stamp(now)}
		if i := slices.IndexFunc(before, func(b runnerapi.SourcePreview) bool { return b.Number == r.Number }); i >= 0 && before[i].Commit == r.Commit {
			item.Since, item.Error = before[i].Since, before[i].Error
		}
		if r.Fork && approved[r.Number] != r.Commit {
			item.State, item.Error = runnerapi.PreviewNeedsApproval, nil
			forks = append(forks, item)
			continue
		}
		own = append(own, item)
	}
	own, forks = own[:min(len(own), maxRequests)], forks[:min(len(forks), maxForks)]
	p.choose(o, own, now)
	all := slices.Concat(own, forks)
	slices.SortFunc(all, func(a, b runnerapi.SourcePreview) int { return cmp.Compare(b.Number, a.Number) })
	return all
}

// choose decides which of the requests have a preview: those with the newest commits.
func (p *previews) choose(o *object, items []runnerapi.SourcePreview, now time.Time) {
	slices.SortStableFunc(items, func(a, b runnerapi.SourcePreview) int { return cmp.Compare(b.Since, a.Since) })
	expiry, err := o.Spec.Previews.Expiry()
	if err != nil { // not written by this agent
		expiry = runnerapi.DefaultPreviewExpiry
	}
	active := 0
	for i := range items {
		item := &items[i]
		since, err := time.Parse(time.RFC3339, item.Since)
		if err != nil {
			since = now
		}
		switch ends := since.Add(expiry); {
		case !ends.After(now):
			item.State, item.Error = runnerapi.PreviewExpired, nil
		case active == o.Spec.Previews.Most():
			item.State, item.Error = runnerapi.PreviewOverLimit, nil
		default:
			active++
			item.State, item.Namespace, item.ExpiresAt = runnerapi.PreviewActive, runnerapi.PreviewNamespace(o.key(), item.Number), p.stamp(ends)
		}
	}
}

// apply makes the previews that are to be, and deletes the others. It reports whether something is
// to be tried again soon.
func (p *previews) apply(ctx context.Context, o *object, items []runnerapi.SourcePreview) (again bool) {
	all, err := p.namespaces.Previews(ctx)
	if err != nil {
		p.log.Warn().Err(err).Msg("failed to list the namespaces of previews; retrying")
		return true
	}
	keep := map[string]bool{}
	for i := range items {
		item := &items[i]
		if item.State != runnerapi.PreviewActive {
			continue
		}
		keep[item.Namespace] = true
		_, isThere := all[item.Namespace]
		err := p.bring(ctx, o, *item, !isThere)
		if err == nil {
			item.Error = nil
			continue
		}
		e := asSourceError(err)
		if isNew := date(e, item.Error, p.stamp(p.now())); isNew {
			p.log.Warn().Err(err).Stringer("source", o.key()).Int64("request", item.Number).Msg("failed to make the preview of a pull request; retrying")
		}
		item.State, item.Error = runnerapi.PreviewFailed, e
		again = again || temporary(*e)
	}
	return p.remove(ctx, o, all, keep) || again
}

// temporary reports whether an error goes by itself, as that of a namespace which is still being
// deleted does.
func temporary(e runnerapi.SourceError) bool {
	return problem.Errorf(problem.Code(e.Code), "", "").Passing()
}

// remove deletes the previews of a source that are not to be kept. It reports whether one could not
// be deleted.
func (p *previews) remove(ctx context.Context, o *object, all map[string]runnerapi.Key, keep map[string]bool) (again bool) {
	for name, of := range all {
		if of != o.key() || keep[name] {
			continue
		}
		p.reporter.retire(ctx, runnerapi.Key{Namespace: name, Name: of.Name})
		record := p.journal.record(o, deleteNamespace, runnerapi.Key{Namespace: name}, map[string]string{"previewOf": of.String()})
		err := p.journal.act(ctx, record, false, func() error {
			return p.namespaces.Delete(ctx, name, runnerapi.WriteOptions{Caller: o.caller()})
		})
		if err != nil && !problem.Is(err, problem.NotFound) {
			p.log.Warn().Err(err).Str("namespace", name).Stringer("source", of).Msg("failed to delete a preview; retrying")
			again = true
		}
	}
	return again
}

// gone deletes all previews of a source. It returns when to try again; 0 if it is done.
func (p *previews) gone(ctx context.Context, key runnerapi.Key) time.Duration {
	if p.namespaces == nil {
		return 0
	}
	all, err := p.namespaces.Previews(ctx)
	if err != nil {
		p.log.Warn().Err(err).Stringer("source", key).Msg("failed to list the namespaces of previews; retrying")
	}
	if err != nil || p.remove(ctx, newObject(key), all, nil) {
		return listAgain
	}
	return 0
}

// sweep deletes the previews of sources that were deleted, or that stopped having previews, while
// no agent ran.
func (p *previews) sweep(ctx context.Context) {
	if p.namespaces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := p.namespaces.Previews(ctx)
	for _, key := range all {
		var left bool
		if left, err = p.left(ctx, key); err != nil {
			break
		}
		if left {
			p.gone(ctx, key)
		}
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn().Err(err).Msg("failed to look for leftover previews; the next leader does")
	}
}

// left reports whether a source that had previews is gone, or has none any more.
func (p *previews) left(ctx context.Context, key runnerapi.Key) (bool, error) {
	api, err := p.cluster.client()
	if err != nil {
		return false, err
	}
	u, err := api.objects.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	o, err := read(u)
	return err == nil && o.Spec.Previews == nil, err
}
