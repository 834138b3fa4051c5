package source

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Rollback implements backend.Sources: it leaves the commit on the source, where the replica which
// leads finds it. A dry run gets the commit and tries all of it.
func (k *Keeper) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.SourceRollback, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	o, err := k.update(ctx, key, opts, func(o *object) (bool, error) {
		if !objectmeta.RecordCommand(o, opts.Command) {
			return false, nil
		}
		commit, err := o.earlier(to)
		o.Annotations[objectmeta.RolledBack], o.Annotations[objectmeta.Sync] = commit, k.mark(opts)
		return true, err
	})
	if err != nil {
		return runnerapi.Source{}, explain(err, key, "rolling back")
	}
	if opts.DryRun {
		out, err := k.reconciler.try(ctx, o)
		o.Status.Hold = out.hold
		return o.wire(), asProblem(err)
	}
	k.Wake()
	return o.wire(), nil
}

// earlier returns the commit to go back to. It is one that was applied: who may roll back may not
// choose what else of the repository runs.
func (o *object) earlier(to runnerapi.SourceRollback) (string, error) {
	if o.Spec.Suspend || o.Status.Suspension != nil && o.suspendedAsPut() {
		return "", problem.Errorf(problem.Conflict, "put it without suspend first: pipeops-runner source set", "source %s is suspended", o.key())
	}
	commit := o.Status.Earlier()
	if to.Commit != "" {
		commit = o.Status.Applied(to.Commit)
	}
	switch {
	case commit == "" && to.Commit != "":
		return "", problem.Errorf(problem.Invalid, "name one of those that `pipeops-runner source get` lists, by more digits",
			"%s is not one commit of the last that source %s has applied", to.Commit, o.key()).WithField("commit")
	case commit == "":
		return "", problem.Errorf(problem.Conflict, "revert the commit in Git, and push it", "source %s has applied no earlier commit that is known", o.key())
	}
	return commit, nil
}

// held returns where a rollback holds the source; nil if none does. It ends with a new sync call or
// put, and when the spec was changed by other means.
func (o *object) held(now func() time.Time) *runnerapi.SourceHold {
	commit := o.Annotations[objectmeta.RolledBack]
	switch {
	case commit == "", o.Status.ObservedSync == o.sync() && o.Status.ObservedGeneration != o.Generation:
		return nil
	case o.Status.ObservedSync != o.sync():
		return &runnerapi.SourceHold{Commit: commit, Since: now().UTC().Format(time.RFC3339)}
	}
	return o.Status.Hold
}

// follow returns the source as it is to be looked at: at the commit where a rollback holds it, or,
// with a nil hold, at the newest one.
func (r *reconciler) follow(ctx context.Context, o *object, hold *runnerapi.SourceHold) (*object, *runnerapi.SourceHold, error) {
	if hold == nil {
		return o, nil, nil
	}
	if !o.building() { // the repository is not contacted during a build
		remote, err := r.applier.remote(ctx, o)
		if err != nil {
			return o, hold, err
		}
		remote.Signers = nil // of this commit nothing is brought
		newest, err := git.Resolve(ctx, remote, o.Spec.Ref, r.applier.Limits)
		if err != nil {
			return o, hold, err
		}
		if cmp.Or(hold.After, newest.Commit) != newest.Commit {
			return o, nil, nil
		}
		hold = &runnerapi.SourceHold{Commit: hold.Commit, After: newest.Commit, Since: hold.Since}
	}
	at := *o
	// The tag's signature may stand for the commit's.
	at.Spec.Ref = runnerapi.GitRef{Commit: hold.Commit, Tag: o.Status.TagOf(hold.Commit)}
	return &at, hold, nil
}

// notHeld explains that the server does not give the commit of a rollback.
func notHeld(hold *runnerapi.SourceHold, err error) error {
	g, ok := errors.AsType[*git.Error](err)
	if hold == nil || !ok || g.Reason != git.RefMissing {
		return err
	}
	return &git.Error{
		Reason: g.Reason, Message: "the source cannot be rolled back to " + hold.Commit + ": " + g.Message,
		Fix: "revert in Git and push; or have the server give any commit (uploadpack.allowAnySHA1InWant); `pipeops-runner source sync` ends the rollback",
	}
}
