package source

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// buildCleanup removes the builds that no source has any more.
type buildCleanup struct {
	builds  Builds // nil if this agent builds nothing
	cluster *cluster
	log     zerolog.Logger

	mu    sync.Mutex
	built map[runnerapi.Key]runnerapi.Key // the builds of sources
}

// tidy removes a build that its source no longer has, and remembers the current one.
func (c *buildCleanup) tidy(ctx context.Context, o *object, now *runnerapi.SourceBuildStatus) {
	if before := o.Status.Build; before != nil && (now == nil || now.Key() != before.Key()) {
		c.remove(ctx, before.Key())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now == nil {
		delete(c.built, o.key())
		return
	}
	if c.built == nil {
		c.built = map[runnerapi.Key]runnerapi.Key{}
	}
	c.built[o.key()] = now.Key()
}

// sweep removes builds that were left behind: those of sources that were deleted, or that stopped
// building, while no agent ran.
func (c *buildCleanup) sweep(ctx context.Context) {
	if c.builds == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of, err := c.builds.OfSources(ctx)
	for build, source := range of {
		var orphan bool
		if orphan, err = c.orphan(ctx, build, source); err != nil {
			break
		}
		if orphan {
			c.log.Info().Stringer("build", build).Stringer("source", source).Msg("removing a build whose source is gone")
			c.remove(ctx, build)
		}
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn().Err(err).Msg("failed to list leftover builds; they end at their deadline")
	}
}

// orphan reports whether a build's source is gone, or builds something else by now.
func (c *buildCleanup) orphan(ctx context.Context, build, source runnerapi.Key) (bool, error) {
	api, err := c.cluster.client()
	if err != nil {
		return false, err
	}
	u, err := api.objects.Resource(resource).Namespace(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	o, err := read(u)
	return err == nil && (o.Spec.Build == nil || o.wire().BuildKey() != build), err
}

// gone removes the build of a deleted source. If the source was deleted while no agent ran, sweep
// does.
func (c *buildCleanup) gone(ctx context.Context, key runnerapi.Key) {
	c.mu.Lock()
	build, there := c.built[key]
	delete(c.built, key)
	c.mu.Unlock()
	if there {
		c.remove(ctx, build)
	}
}

func (c *buildCleanup) remove(ctx context.Context, build runnerapi.Key) {
	if c.builds == nil {
		return
	}
	err := c.builds.Delete(ctx, build, runnerapi.WriteOptions{})
	if err != nil && !problem.Is(err, problem.NotFound) {
		c.log.Warn().Err(err).Stringer("build", build).Msg("failed to remove the build of a source that no longer has one")
	}
}
