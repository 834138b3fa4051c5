package helm

import (
	"cmp"
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Delete implements backend.Releases.
func (r *Releases) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	s, err := r.open(ctx, key, "delete-release", opts.WriteOptions)
	if err != nil {
		return runnerapi.Release{}, err
	}
	if err = s.exists(); err == nil {
		err = s.reserve(ctx, changing)
	}
	if err != nil {
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
		_, cluster, _, err := s.configuration(s.admit(opts))
		if err == nil {
			was.Objects, err = s.ends(cluster, last)
		}
		return was, err
	}
	release, err := s.work(ctx, 3*runnerapi.DefaultReleaseTimeout+overhead, func() error { return s.uninstall(last, opts) })
	if problem.Is(err, problem.NotFound) && s.hasBegun() {
		return was.Uninstalled(), nil // already done
	}
	return release, err
}

// ends returns what uninstalling removes.
func (s *session) ends(c *cluster, last *release.Release) ([]runnerapi.ReleaseObject, error) {
	c.removes = true
	if err := c.ending(last); err != nil {
		return nil, err
	}
	return c.remove(last, nil)
}

func (s *session) uninstall(last *release.Release, opts runnerapi.ReleaseOptions) error {
	s.lock.say("uninstalling")
	cfg, cluster, _, err := s.configuration(s.admit(opts))
	if err != nil {
		return err
	}
	if _, err := s.ends(cluster, last); err != nil {
		return err
	}
	// What is left keeps the release: neither hooks of its end run, nor does its history go.
	cluster.held = func() error { return cmp.Or(s.lock.stands(), cluster.remains()) }
	s.store.remains = cluster.remains
	s.deletes = true
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
