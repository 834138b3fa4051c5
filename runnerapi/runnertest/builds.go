package runnertest

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Run implements backend.Builds. The build succeeds at once, unless its image says
// otherwise: with "broken" in its name it fails.
func (b fakeBuilds) Run(ctx context.Context, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	if err := b.enter(ctx, Call{"Builds.Run", key, opts}); err != nil {
		return runnerapi.Build{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(key.Namespace); err != nil {
		return runnerapi.Build{}, err
	}
	build := runnerapi.Build{
		Namespace: key.Namespace, Name: key.Name, CreatedAt: epoch, Spec: spec,
		Status: runnerapi.BuildStatus{Phase: runnerapi.BuildPending},
	}
	if !opts.DryRun {
		if b.builds == nil {
			b.builds = map[runnerapi.Key]runnerapi.BuildSpec{}
		}
		b.builds[key] = spec
	}
	return build, nil
}

// Get implements backend.Builds.
func (b fakeBuilds) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error) {
	if err := b.enter(ctx, Call{Verb: "Builds.Get", Key: key}); err != nil {
		return runnerapi.Build{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	spec, ok := b.builds[key]
	if !ok {
		return runnerapi.Build{}, notFound("build", key)
	}
	return ended(key, spec), nil
}

func ended(key runnerapi.Key, spec runnerapi.BuildSpec) runnerapi.Build {
	const commit = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	build := runnerapi.Build{Namespace: key.Namespace, Name: key.Name, CreatedAt: epoch, Spec: spec, Status: runnerapi.BuildStatus{
		Phase: runnerapi.BuildSucceeded, Commit: commit, Image: spec.Image + "@" + digest, Seconds: 12,
		StartedAt: &epoch, FinishedAt: &epoch,
	}}
	if spec.Target == "broken" {
		build.Status.Phase, build.Status.Image = runnerapi.BuildFailed, ""
		build.Status.Failure = &runnerapi.BuildFailure{
			Stage: "build", Cause: "step_failed", Message: "exit code: 7", Fix: "see what the step printed",
			Step: "[2/3] RUN make", Line: 3, LastLines: []string{"make: error"},
		}
	}
	return build
}

// List implements backend.Builds.
func (b fakeBuilds) List(ctx context.Context, namespace string) ([]runnerapi.Build, error) {
	if err := b.enter(ctx, Call{Verb: "Builds.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var items []runnerapi.Build
	for key, spec := range b.builds {
		if key.Namespace == namespace {
			items = append(items, ended(key, spec))
		}
	}
	return items, nil
}

// Delete implements backend.Builds.
func (b fakeBuilds) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	if err := b.enter(ctx, Call{"Builds.Delete", key, opts}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.builds[key]; !ok {
		return notFound("build", key)
	}
	if !opts.DryRun {
		delete(b.builds, key)
	}
	return nil
}

// Logs implements backend.Builds.
func (b fakeBuilds) Logs(ctx context.Context, key runnerapi.Key, _ runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	if _, err := b.Builds().Get(ctx, key); err != nil {
		return err
	}
	for _, line := range []string{"commit 0a1b2c3d", "#5 [2/3] RUN make", "pushed"} {
		if err := emit(runnerapi.LogLine{Time: epoch, Pod: "build-" + key.Name, Line: line}); err != nil {
			return err
		}
	}
	return nil
}
