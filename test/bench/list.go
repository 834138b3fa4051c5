package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Bounds on the answer to a list call and on the time until a deploy is applied.
const (
	listBound  = 200 * time.Millisecond
	applyBound = 500 * time.Millisecond
	warmups    = 3
)

// measureLists asks for all Apps, one call after another: from the call to the
// last App decoded. Between them it asks for one App, which is next to no work:
// what that takes is the way, and what else the machine is doing.
func (b *bench) measureLists(ctx context.Context) error {
	var took, one durations
	for i := range warmups + b.Lists {
		start := time.Now()
		if _, err := b.client.Get(ctx, b.app(i%b.Apps)); err != nil {
			return err
		}
		if i >= warmups {
			one = append(one, time.Since(start))
		}
		start = time.Now()
		apps, err := b.client.List(ctx, "")
		if err != nil {
			return err
		}
		if len(apps) != b.Apps {
			return fmt.Errorf("the list has %d Apps of %d", len(apps), b.Apps)
		}
		if i >= warmups {
			took = append(took, time.Since(start))
		}
	}
	b.add("get_p50", "One App, p50", milliseconds(one.percentile(50)), "ms", nil)
	b.add("get_p99", "One App, p99", milliseconds(one.percentile(99)), "ms", nil)
	b.add("list_p50", "List of all Apps, p50", milliseconds(took.percentile(50)), "ms", atMost(milliseconds(listBound)))
	b.add("list_p99", "List of all Apps, p99", milliseconds(took.percentile(99)), "ms", atMost(milliseconds(listBound)))
	return nil
}

// measureDeploys deploys changed specs, to one App after another: from the call
// until the API server tells of the Deployment with the new spec.
func (b *bench) measureDeploys(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of watches that an error leaves behind
	var took, answered durations
	for i := range b.Deploys {
		key, version := b.app(i), 1+i/b.Apps
		applied, err := b.watchDeployment(ctx, key, fmt.Sprint(version))
		if err != nil {
			return err
		}
		start := time.Now()
		if _, err := b.client.Deploy(ctx, key, b.spec(version), runnerapi.WriteOptions{}); err != nil {
			return err
		}
		answered = append(answered, time.Since(start))
		at, err := applied(ctx)
		if err != nil {
			return fmt.Errorf("deploy of %s: %w", key, err)
		}
		took = append(took, at.Sub(start))
	}
	b.add("deploy_answer_p50", "Deploy answered, p50", milliseconds(answered.percentile(50)), "ms", nil)
	b.add("deploy_applied_p50", "Deploy applied, p50", milliseconds(took.percentile(50)), "ms", atMost(milliseconds(applyBound)))
	b.add("deploy_applied_p99", "Deploy applied, p99", milliseconds(took.percentile(99)), "ms", atMost(milliseconds(applyBound)))
	return nil
}
