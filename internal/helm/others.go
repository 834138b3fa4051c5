package helm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// RollbackRelease implements server.Releases.
func (r *Releases) RollbackRelease(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	s, err := r.open(ctx, key, "rollback-release", opts.WriteOptions)
	if err != nil {
		return runnerapi.Release{}, err
	}
	revision, next, err := s.target(to.Revision, opts.AdmitObjects)
	if err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	if opts.DryRun {
		defer s.close()
		return s.rolledBack(ctx, revision, next)
	}
	return s.work(ctx, 3*to.TimeLimit()+overhead, func() error {
		cfg, cluster, _, err := s.configuration(opts.AdmitObjects)
		if err != nil {
			return err
		}
		if _, err := s.undoes(cluster, next); err != nil {
			return err
		}
		if _, err := compare(s.ctx, cluster, s.key, next, to.ForceConflicts, nil); err != nil {
			return err
		}
		do := action.NewRollback(cfg)
		do.Version, do.Timeout, do.MaxHistory = revision.version, to.TimeLimit(), maxHistory
		do.WaitStrategy, do.ServerSideApply, do.ForceConflicts = kube.LegacyStrategy, "true", to.ForceConflicts
		return do.Run(s.key.Name)
	})
}

// target returns the revision to return to, with its objects, and asks whether they are allowed.
func (s *session) target(revision int, admit func([]runnerapi.ObjectIntent) error) (record, []*object, error) {
	if err := s.exists(); err != nil {
		return record{}, nil, err
	}
	at, err := s.revision(revision)
	if err != nil {
		return record{}, nil, err
	}
	rel, err := one(s.store.Driver, at)
	if err != nil {
		return record{}, nil, err
	}
	objects, err := releaseObjects(rel)
	if err != nil {
		return record{}, nil, err
	}
	for _, o := range objects {
		if err := s.limits().check(o); err != nil {
			return record{}, nil, err
		}
	}
	in, err := intents(objects)
	if err == nil && admit != nil {
		err = admit(in)
	}
	return at, objects, err
}

// undoes returns what the rollback removes: Helm starts from the newest revision, failed or not.
func (s *session) undoes(c *cluster, next []*object) ([]runnerapi.ReleaseObject, error) {
	had, err := one(s.store.Driver, s.history[0])
	if err != nil {
		return nil, err
	}
	return c.remove(had, next)
}

// revision returns the revision with that number; for 0 the one that was deployed before.
func (s *session) revision(number int) (record, error) {
	deployed := s.history[0].status != common.StatusDeployed // the newest failed: return to the current one
	for i, r := range s.history {
		switch {
		case number != 0 && r.version == number:
			return r, nil
		case number != 0 || i == 0 && !deployed:
		case r.status == common.StatusDeployed || r.status == common.StatusSuperseded:
			return r, nil
		}
	}
	if number == 0 {
		return record{}, problem.Errorf(problem.Conflict, "deploy it again", "release %s has no earlier revision that was deployed", s.key.Name)
	}
	return record{}, problem.Errorf(problem.Invalid, "see which there are: pipeops-runner release history AGENT "+s.key.Name,
		"release %s has no revision %d; %d are kept", s.key.Name, number, maxHistory).WithField("revision")
}

func (s *session) rolledBack(ctx context.Context, to record, next []*object) (runnerapi.Release, error) {
	defer context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })()
	_, cluster, _, err := s.configuration(nil)
	if err != nil {
		return runnerapi.Release{}, err
	}
	gone, err := s.undoes(cluster, next)
	if err != nil {
		return runnerapi.Release{}, err
	}
	rel, err := one(s.store.Driver, to)
	if err != nil {
		return runnerapi.Release{}, err
	}
	v := view(rel, true)
	v.Objects = gone
	v.Revision, v.Status, v.Description = s.next(), "unknown", fmt.Sprintf("dry run: it would go back to revision %d; nothing was changed", to.version)
	return v, nil
}

// DeleteRelease implements server.Releases.
func (r *Releases) DeleteRelease(ctx context.Context, key runnerapi.Key, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	s, err := r.open(ctx, key, "delete-release", opts.WriteOptions)
	if err != nil {
		return runnerapi.Release{}, err
	}
	if err := s.exists(); err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	last, err := one(s.store.Driver, s.history[0])
	if err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	was := view(last, true)
	// With the lock, no other command changes the release. So a release that came after the command
	// was answered elsewhere is recognized.
	if late, err := opts.Late(ctx); late || err != nil {
		s.close()
		return was, err
	}
	if opts.DryRun {
		defer s.close()
		defer context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })()
		was.Description = "dry run: nothing was changed"
		_, cluster, _, err := s.configuration(nil)
		if err == nil {
			was.Objects, err = s.ends(cluster, last)
		}
		return was, err
	}
	release, err := s.work(ctx, 3*runnerapi.DefaultReleaseTimeout+overhead, func() error { return s.uninstall(last) })
	if known := (*problem.Error)(nil); errors.As(err, &known) && known.Code == problem.NotFound && s.hasBegun() {
		return was.Uninstalled(), nil // already done
	}
	return release, err
}

// ends returns what uninstalling removes.
func (s *session) ends(c *cluster, last *release.Release) ([]runnerapi.ReleaseObject, error) {
	c.removes = true
	if err := s.limits().removal(last); err != nil {
		return nil, err
	}
	return c.remove(last, nil)
}

func (s *session) uninstall(last *release.Release) error {
	s.lock.say("uninstalling")
	cfg, cluster, _, err := s.configuration(nil)
	if err != nil {
		return err
	}
	if _, err := s.ends(cluster, last); err != nil {
		return err
	}
	// What is left keeps the release: neither hooks of its end run, nor does its history go.
	cluster.held = func() error { return cmp.Or(s.lock.stands(), cluster.remains()) }
	s.store.remains = cluster.remains
	s.store.begin() // from here on the release shows the progress
	do := action.NewUninstall(cfg)
	do.WaitStrategy, do.Timeout, do.DeletionPropagation = kube.LegacyStrategy, s.opts.GoneWait, "foreground"
	_, err = do.Run(s.key.Name)
	if left := cluster.remains(); left != nil {
		return left
	}
	if failure := cluster.failure(); err != nil && failure != nil {
		err = fmt.Errorf("%w: %w", err, failure)
	}
	return err
}

// GetRelease implements server.Releases.
func (r *Releases) GetRelease(ctx context.Context, key runnerapi.Key) (v runnerapi.Release, err error) {
	for range 3 { // a command that ends may remove what is being read
		if v, err = r.getRelease(ctx, key); !errors.Is(err, errRemoved) {
			break
		}
	}
	return v, err
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
	d, err := r.driverFor(ctx, key.Namespace)
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

// ListReleases implements server.Releases. It holds one revision in memory at a time.
func (r *Releases) ListReleases(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
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

// ReleaseHistory implements server.Releases.
func (r *Releases) ReleaseHistory(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
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
	d, err := r.driverFor(ctx, namespace)
	if err != nil {
		return runnerapi.Release{}, err
	}
	rel, err := one(d, at)
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

// WaitRelease implements server.Releases.
func (r *Releases) WaitRelease(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	for {
		release, err := r.GetRelease(ctx, key)
		if err != nil || !release.Busy() {
			return release, err
		}
		if !retry.Wait(ctx, waitStep) {
			return release, nil
		}
	}
}
