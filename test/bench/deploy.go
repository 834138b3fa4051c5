package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deployed is what the deploys of one series took.
type deployed struct{ answered, applied durations }

// measureDeploys deploys changed specs, to one App after another, in two series:
// each when the rollout of the one before has ended, and each at once, so that
// the rollouts of the ones before share the machine with it.
func (b *bench) measureDeploys(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of watches that an error leaves behind
	alone, err := b.deploySeries(ctx, 0, func(key runnerapi.Key, generation int64) error { return b.awaitRollout(ctx, key, generation) })
	if err != nil {
		return err
	}
	crowd, err := b.deploySeries(ctx, b.Deploys, func(runnerapi.Key, int64) error { return nil })
	if err != nil {
		return err
	}
	b.set.Add("deploy_answer_p50", milliseconds(alone.answered.percentile(50)))
	b.set.Add("deploy_applied_p50", milliseconds(alone.applied.percentile(50)))
	b.set.Add("deploy_applied_p99", milliseconds(alone.applied.percentile(99)))
	b.set.Add("deploy_crowd_answer_p50", milliseconds(crowd.answered.percentile(50)))
	b.set.Add("deploy_crowd_applied_p50", milliseconds(crowd.applied.percentile(50)))
	b.set.Add("deploy_crowd_applied_p99", milliseconds(crowd.applied.percentile(99)))
	return nil
}

// deploySeries measures from each call until the API server shows the Deployment with the new spec.
// first is how many deploys there were before.
func (b *bench) deploySeries(ctx context.Context, first int, then func(runnerapi.Key, int64) error) (deployed, error) {
	var took deployed
	for i := range b.Deploys {
		key, version := b.app(first+i), 1+(first+i)/b.Apps
		applied, err := b.watchDeployment(ctx, key, fmt.Sprint(version))
		if err != nil {
			return took, err
		}
		start := time.Now()
		app, err := b.client.Apps().Deploy(ctx, key, b.spec(version), runnerapi.WriteOptions{})
		if err != nil {
			return took, err
		}
		took.answered = append(took.answered, time.Since(start))
		at, err := applied(ctx)
		if err != nil {
			return took, fmt.Errorf("deploy of %s: %w", key, err)
		}
		took.applied = append(took.applied, at.Sub(start))
		if err := then(key, app.Generation); err != nil {
			return took, err
		}
	}
	return took, nil
}

// awaitRollout waits until all pods of an App run its newest spec.
func (b *rig) awaitRollout(ctx context.Context, key runnerapi.Key, generation int64) error {
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	app, err := b.client.Apps().Wait(ctx, key, generation)
	if err == nil && app.Status.Phase != runnerapi.PhaseHealthy {
		err = fmt.Errorf("of App %s: it is %s, not healthy", key, app.Status.Phase)
	}
	return err
}
