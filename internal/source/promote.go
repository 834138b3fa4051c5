package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/condition"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	getSource = "get-source"
	// maxPromotions bounds how many sources follow one after the other.
	maxPromotions = 10
)

// promotion is what a source follows.
type promotion struct {
	source *object // at the commit that was promoted; the source as it is where it follows a ref
	status *runnerapi.SourcePromotionStatus
	new    bool          // the commit was not tried yet
	wait   time.Duration // when to look again at the latest; 0 for not before the other source changes
	err    error         // why nothing can be promoted
}

// next returns when to look again: after this time at the latest.
func (p promotion) next(d time.Duration) time.Duration {
	if p.wait > 0 {
		return min(d, p.wait)
	}
	return d
}

// promoted decides whether the commit that the other source has applied is due.
func (r *reconciler) promoted(ctx context.Context, o *object) promotion {
	if o.Spec.Promote == nil {
		return promotion{source: o}
	}
	from := o.promotedFrom()
	s := &runnerapi.SourcePromotionStatus{From: from.String()}
	if last := o.Status.Promotion; last != nil && last.From == s.From {
		s.Commit, s.Tag, s.PromotedAt = last.Commit, last.Tag, last.PromotedAt
	}
	p := promotion{status: s}
	var up *object
	if up, p.err = r.applier.upstream(ctx, o); p.err == nil {
		p.wait = r.await(ctx, o, up, s)
	}
	p.new = s.Commit != o.followed()
	p.source = o.at(s.Commit, s.Tag)
	return p
}

// await writes into the status whether a commit is promoted, or what is awaited. It returns when to
// look again, unless the other source changes before; 0 for not before.
func (r *reconciler) await(ctx context.Context, o, up *object, s *runnerapi.SourcePromotionStatus) time.Duration {
	commit, now := up.Status.Commit, r.now()
	if commit != s.Commit {
		s.Candidate, s.Approved = commit, o.approvals().Promotion == commit
	}
	since, ready := up.readySince()
	if !ready {
		s.Message = fmt.Sprintf("waits until source %s is Ready; it is %s", s.From, up.wire().Status.Phase)
		return 0
	}
	if commit == s.Commit {
		return 0
	}
	after, err := o.Spec.Promote.Wait()
	if err != nil { // not written by this agent
		s.Message = "promote.after " + err.Error()
		return 0
	}
	due := since.Add(after)
	s.ReadySince, s.DueAt = stamp(since), stamp(due)
	if left := due.Sub(now); left > 0 {
		s.Message = fmt.Sprintf("promotes commit %.12s at %s if source %s stays Ready", commit, s.DueAt, s.From)
		return left
	}
	if o.Spec.Promote.Approval && !s.Approved {
		s.Message = "waits until commit " + commit + " is approved: pipeops-runner source approve"
		return 0
	}
	// The status may be from before the agent was restarted.
	phase, _, err := r.health(ctx, up)
	if err != nil || phase != runnerapi.SourceReady {
		s.ReadySince, s.DueAt = "", ""
		s.Message = fmt.Sprintf("waits until what source %s has applied is Ready", s.From)
		return soon
	}
	*s = runnerapi.SourcePromotionStatus{From: s.From, Commit: commit, Tag: up.Status.Tag, PromotedAt: stamp(now)}
	return 0
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// readySince returns since when the source has been Ready with the commit that it has applied;
// false if it is not.
func (o *object) readySince() (since time.Time, ready bool) {
	if !o.observed() || o.Status.Phase != runnerapi.SourceReady || o.Status.Commit == "" {
		return since, false
	}
	i := slices.IndexFunc(o.Status.Conditions, func(c runnerapi.Condition) bool {
		return c.Type == runnerapi.ConditionReady && c.Status == "True"
	})
	if i < 0 {
		return since, false
	}
	since, err := time.Parse(time.RFC3339, o.Status.Conditions[i].LastTransitionTime)
	applied, err2 := time.Parse(time.RFC3339, o.Status.AppliedAt) // it may be Ready all the time
	if applied.After(since) {
		since = applied
	}
	return since, err == nil && err2 == nil
}

// at returns the source as one that follows a commit; the tag that led to it may be signed in the
// commit's place.
func (o *object) at(commit, tag string) *object {
	at := *o
	at.Spec.Ref = runnerapi.GitRef{Commit: commit, Tag: tag}
	return &at
}

// followed returns the newest commit that was tried of what the source follows. A build in progress
// may be of an earlier one than was promoted meanwhile.
func (o *object) followed() string {
	if h := o.Status.Hold; h != nil {
		return h.After
	}
	return o.Status.Attempted
}

func (o *object) promotedFrom() runnerapi.Key { return o.Spec.Promote.Source(o.Namespace) }

// upstream returns the source that another one gets its commits from, if it may.
func (a *applier) upstream(ctx context.Context, o *object) (*object, error) {
	from := o.promotedFrom()
	refused := func(fix, format string, args ...any) error {
		return problem.Errorf(problem.Invalid, fix, format, args...).WithField("promote.from")
	}
	if err := a.allowed(o, runnerapi.Intent{Command: getSource, Access: runnerapi.Reads, Namespace: from.Namespace, Name: from.Name}); err != nil {
		return nil, err
	}
	up, err := a.source(ctx, from)
	if err != nil {
		return nil, err
	}
	if up == nil {
		return nil, refused("put that source first, or name another one", "there is no source %s", from)
	}
	if !sameRepository(o, up) {
		return nil, refused("give both the same url", "source %s follows another repository: %s", from, up.Spec.URL)
	}
	for at, n := up, 1; at != nil; n++ {
		switch {
		case at.key() == o.key():
			return nil, refused("let one of them follow a branch or tags", "source %s would follow itself", o.key())
		case n > maxPromotions:
			return nil, refused("let the sources follow the same one", "more than %d sources follow each other", maxPromotions)
		case at.Spec.Promote == nil:
			return up, nil
		}
		if at, err = a.source(ctx, at.promotedFrom()); err != nil {
			return nil, err
		}
	}
	return up, nil
}

// source reads a source; nil if there is none.
func (a *applier) source(ctx context.Context, key runnerapi.Key) (*object, error) {
	sources, err := a.cluster.on(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !unknownResource(err) {
		return nil, nil //nolint:nilnil // none is no error here
	}
	if err != nil {
		return nil, explain(err, key, "reading")
	}
	return read(u)
}

func sameRepository(a, b *object) bool {
	x, err1 := runnerapi.ParseGitURL(a.Spec.URL)
	y, err2 := runnerapi.ParseGitURL(b.Spec.URL)
	return err1 == nil && err2 == nil && x == y
}

// waiting is the status of a source to which nothing was promoted yet. What it applied before
// stays.
func (r *reconciler) waiting(ctx context.Context, o *object, s runnerapi.SourceStatus) runnerapi.SourceStatus {
	s.Phase, s.Error, s.Health, s.Hold = runnerapi.SourceWaiting, nil, nil, nil
	s.Build = r.withoutBuild(ctx, o)
	r.condition(&s, condition.InProgress, "AwaitingPromotion", s.Promotion.Message)
	return s
}

// try tries what a source would apply now. To one that follows another source, the commit which
// that has applied need not be due.
func (r *reconciler) try(ctx context.Context, o *object) (brought, error) {
	if o.Spec.Promote == nil {
		return r.attempt(ctx, o, true)
	}
	up, err := r.applier.upstream(ctx, o)
	if err != nil || up.Status.Commit == "" {
		return brought{}, err
	}
	return r.attempt(ctx, o.at(up.Status.Commit, up.Status.Tag), true)
}

// notPromoted explains that the server does not give the commit that was promoted.
func notPromoted(o *object, err error) error {
	g, ok := errors.AsType[*git.Error](err)
	if o.Spec.Promote == nil || !ok || g.Reason != git.RefMissing {
		return err
	}
	return &git.Error{
		Reason: g.Reason, Message: "the commit of source " + o.promotedFrom().String() + " cannot be fetched: " + g.Message,
		Fix: "have the server give any commit (uploadpack.allowAnySHA1InWant); or promote without delay (promote.after)",
	}
}

// wakePromoted schedules looks at the sources that follow this one.
func (k *Keeper) wakePromoted(upstream runnerapi.Key) {
	for _, u := range k.watched.all() {
		from, _, _ := unstructured.NestedString(u.Object, "spec", "promote", "from")
		if from != "" && (runnerapi.SourcePromotion{From: from}).Source(u.GetNamespace()) == upstream {
			k.work.Add(runnerapi.Key{Namespace: u.GetNamespace(), Name: u.GetName()})
		}
	}
}

// applied returns what of a source's status the sources that follow it depend on.
func applied(u *unstructured.Unstructured) (state [3]string) {
	for i, field := range []string{"phase", "commit", "appliedAt"} {
		state[i], _, _ = unstructured.NestedString(u.Object, "status", field)
	}
	return state
}
