package helm

import (
	"context"
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Rollback implements backend.Releases.
func (r *Releases) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	s, err := r.open(ctx, key, "rollback-release", opts.WriteOptions)
	if err != nil {
		return runnerapi.Release{}, err
	}
	if is, before, err := s.answered(ctx, opts.WriteOptions); before {
		return is, err
	}
	if err := s.reserve(ctx, changing); err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	stop := context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
	defer stop()
	cfg, cluster, _, err := s.configuration(s.admit(opts))
	if err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	revision, next, err := s.target(cluster, to.Revision)
	if err != nil {
		s.close()
		return runnerapi.Release{}, err
	}
	if opts.DryRun {
		defer s.close()
		return s.rolledBack(cluster, revision, next)
	}
	stop() // what has begun goes on without its caller
	return s.work(ctx, 3*to.TimeLimit()+overhead, func() error {
		if _, err := s.undoes(cluster, next); err != nil {
			return err
		}
		if _, err := compare(s.ctx, cluster, s.key, next, comparison{force: to.ForceConflicts}); err != nil {
			return err
		}
		do := action.NewRollback(cfg)
		do.Version, do.Timeout, do.MaxHistory = revision.version, to.TimeLimit(), maxHistory
		do.WaitStrategy, do.ServerSideApply, do.ForceConflicts = kube.LegacyStrategy, "true", to.ForceConflicts
		return do.Run(s.key.Name)
	})
}

// target returns the revision to return to, with its objects, and asks whether they are allowed.
func (s *session) target(c *cluster, revision int) (record, []*object, error) {
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
		if err := c.limits.check(o); err != nil {
			return record{}, nil, err
		}
	}
	s.chart = keptChart(rel)
	return at, objects, c.admitted(objects)
}

// keptChart identifies a revision's chart for the policy. Its digest is not kept.
func keptChart(r *release.Release) *runnerapi.ChartIntent {
	if r.Chart == nil || r.Chart.Metadata == nil {
		return nil
	}
	return &runnerapi.ChartIntent{Name: r.Chart.Metadata.Name, Version: r.Chart.Metadata.Version}
}

// undoes returns what the rollback removes: Helm starts from the newest revision, failed or not.
func (s *session) undoes(c *cluster, next []*object) ([]runnerapi.ReleaseObject, error) {
	had, err := one(s.store.Driver, s.history[0])
	if err != nil {
		return nil, err
	}
	return c.remove(had, next)
}

// revision returns the revision with that number; for 0 the one that was deployed before. What a
// try of this command made that broke off does not count.
func (s *session) revision(number int) (record, error) {
	history := slices.DeleteFunc(slices.Clone(s.history), s.own)
	deployed := len(history) > 0 && history[0].status != common.StatusDeployed // the newest failed: return to the current one
	for i, r := range history {
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
	return record{}, problem.Errorf(problem.Invalid, "see which there are: pipeops-runner helm history AGENT "+s.key.Name,
		"release %s has no revision %d; %d are kept", s.key.Name, number, maxHistory).WithField("revision")
}

func (s *session) rolledBack(c *cluster, to record, next []*object) (runnerapi.Release, error) {
	gone, err := s.undoes(c, next)
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
