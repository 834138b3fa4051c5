package source

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/condition"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// reconciler brings one source up to date, and returns its new status.
type reconciler struct {
	apps      Apps
	manifests Manifests
	applier   *applier
	builder   *builder
	cleanup   *buildCleanup
	journal   *journal
	revoked   *revokedRunners
	now       func() time.Time
	log       zerolog.Logger
}

// reconcile updates a source and returns the result.
func (r *reconciler) reconcile(ctx context.Context, o *object) (runnerapi.SourceStatus, time.Duration) {
	s := o.Status
	s.ObservedGeneration, s.ObservedSync = o.Generation, o.sync()
	if s.Suspension = r.suspension(o); s.Suspension != nil {
		return r.suspend(ctx, o, s), 0
	}
	if o.Spec.Suspend {
		s.Phase = runnerapi.SourceSuspended
		r.condition(&s, condition.Current, "Suspended", "its spec suspends it")
		return s, 0
	}
	every, err := o.Spec.Every()
	if err != nil { // not written by this agent
		every = runnerapi.DefaultSourceInterval
	}
	p := r.promoted(ctx, o)
	s.Promotion = p.status
	switch left := r.notBefore(o, every); {
	case p.err != nil:
	case p.status != nil && p.status.Commit == "":
		return r.waiting(ctx, o, s), p.next(every)
	case left > 0 && !p.new: // only the cluster is read, not the repository
		return r.withHealth(ctx, o, s, p.next(left))
	}
	missed := o.building() && s.ObservedLook != o.Annotations[objectmeta.Look]
	if !missed { // a push during a build is looked at after it
		s.ObservedLook = o.Annotations[objectmeta.Look]
	}
	out, err := brought{build: kept(o), hold: o.held(r.now)}, p.err
	if err == nil {
		out, err = r.attempt(ctx, p.source, false)
	}
	r.cleanup.tidy(ctx, o, out.build)
	s.Build, s.Hold = out.build, out.hold
	if err == nil && out.building() { // the repository is not contacted meanwhile
		s.Attempted, s.Phase = out.commit, runnerapi.SourceBuilding
		r.condition(&s, condition.InProgress, "Building", "commit "+out.commit+" as build "+out.build.Key().String())
		return s, buildPause
	}
	now := r.now().UTC().Format(time.RFC3339)
	s.CheckedAt = now
	if out.commit != "" {
		s.Attempted = out.commit
	}
	if missed {
		every = progressPause
	}
	if err != nil {
		return r.failed(o, s, out, err), p.next(min(every, r.again(err, every)))
	}
	if out.new {
		s.AppliedAt = now
		s.History = s.WithApplied(runnerapi.SourceCommit{Commit: out.commit, Tag: out.tag, AppliedAt: now, Revision: out.revision})
		r.journal.note(o, out, nil)
	}
	s.Error, s.Commit, s.Tag, s.Revision, s.Objects = nil, out.commit, out.tag, out.revision, out.objects
	return r.withHealth(ctx, o, s, p.next(spread(every)))
}

// building reports whether the source has waited for a build since it was last put or synced.
func (o *object) building() bool { return o.observed() && o.Status.Phase == runnerapi.SourceBuilding }

// attempt gets the newest commit, or the one where a rollback holds the source. It applies the
// commit, unless it is applied already.
func (r *reconciler) attempt(ctx context.Context, o *object, dryRun bool) (brought, error) {
	out := brought{build: kept(o), hold: o.held(r.now)}
	if err := r.applier.allowed(o, putIntent); err != nil {
		return out, err
	}
	at, hold, err := r.follow(ctx, o, out.hold)
	if out.hold = hold; err != nil {
		return out, err
	}
	if o.Spec.Build != nil {
		out, err = r.builder.attempt(ctx, at, dryRun)
	} else {
		out, err = r.applier.attempt(ctx, at, dryRun)
	}
	out.hold = hold
	if err = notHeld(hold, err); hold == nil {
		err = notPromoted(o, err)
	}
	return out, conceal(err, out.secrets)
}

func (r *reconciler) failed(o *object, s runnerapi.SourceStatus, out brought, err error) runnerapi.SourceStatus {
	e := asSourceError(err)
	if e.Code == string(problem.Internal) {
		r.log.Error().Err(err).Stringer("source", o.key()).Msg("reconciling a source failed for an unknown reason")
	}
	e.Commit = out.commit
	if isNew := date(e, o.Status.Error, s.CheckedAt); isNew {
		r.journal.note(o, out, e)
	}
	s.Phase, s.Error, s.Health = runnerapi.SourceFailed, e, nil
	r.condition(&s, condition.Failed, "Failed", e.Message)
	return s
}

// again returns when to retry after an error.
func (r *reconciler) again(err error, every time.Duration) time.Duration {
	var g *git.Error
	p := &problem.Error{}
	switch {
	case errors.As(err, &g) && (g.Reason == git.Unreachable || g.Reason == git.Timeout), errors.As(asProblem(err), &p) && p.Passing():
		return spread(soon)
	}
	return spread(every)
}

func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64())) //nolint:gosec // no secret: it keeps agents apart
}

func (r *reconciler) condition(s *runnerapi.SourceStatus, p condition.Progress, reason, message string) {
	s.Conditions = condition.Dated(condition.Summary(p, reason, message), s.Conditions, s.ObservedGeneration, r.now())
}

// kept returns the build of a source that is not checked.
func kept(o *object) *runnerapi.SourceBuildStatus {
	if o.Spec.Build == nil {
		return nil
	}
	return o.Status.Build
}
