package runnertest

import (
	"cmp"
	"context"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Set implements backend.Sources: a source is ready at once, but for one whose URL
// has "missing" in it.
func (b fakeSources) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	if err := b.enter(ctx, Call{Verb: "Sources.Set", Key: key, WriteOptions: opts}); err != nil {
		return runnerapi.Source{}, err
	}
	s := runnerapi.Source{Namespace: key.Namespace, Name: key.Name, Generation: 1, CreatedAt: epoch, Runner: opts.Caller.Runner, Spec: spec}
	s.Status = runnerapi.SourceStatus{Phase: runnerapi.SourceReady, Commit: strings.Repeat("c0ffee12", 5), Objects: 1}
	if strings.Contains(spec.URL, "missing") {
		s.Status = runnerapi.SourceStatus{Phase: runnerapi.SourceFailed, Error: &runnerapi.SourceError{
			Code: "repository_not_found", Message: "there is no repository " + spec.URL, Fix: "correct url", Since: "2026-01-02T03:04:05Z",
		}}
	}
	if spec.Report != nil {
		s.Status.Report = &runnerapi.SourceReportStatus{
			ObservedGeneration: 1, State: runnerapi.ReportSuccess, Commit: s.Status.Commit, Description: "ready", SentAt: "2026-01-02T03:04:05Z", SucceededAt: "2026-01-02T03:04:05Z",
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if opts.DryRun {
		return s, nil
	}
	if spec.Build != nil {
		s.Status.Build = b.built(s)
	}
	if b.sources == nil {
		b.sources = map[runnerapi.Key]runnerapi.Source{}
	}
	b.sources[key] = s
	return s, nil
}

// built builds what a source describes, at once.
func (b *FakeBackend) built(s runnerapi.Source) *runnerapi.SourceBuildStatus {
	key, spec := s.BuildKey(), s.Spec.BuildSpec(s.Status.Commit, "1")
	if b.builds == nil {
		b.builds = map[runnerapi.Key]runnerapi.BuildSpec{}
	}
	b.builds[key] = spec
	done := ended(key, spec).Status
	return &runnerapi.SourceBuildStatus{
		Namespace: key.Namespace, Name: key.Name, Run: spec.Run, Commit: s.Status.Commit, Phase: done.Phase, Image: done.Image, Failure: done.Failure,
	}
}

// Get implements backend.Sources.
func (b fakeSources) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Source, error) {
	return b.source(ctx, Call{Verb: "Sources.Get", Key: key})
}

func (b *FakeBackend) source(ctx context.Context, call Call) (runnerapi.Source, error) {
	if err := b.enter(ctx, call); err != nil {
		return runnerapi.Source{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.sources[call.Key]
	if !ok {
		return s, problem.Errorf(problem.NotFound, "check the name", "there is no source %s", call.Key)
	}
	return s, nil
}

// List implements backend.Sources.
func (b fakeSources) List(ctx context.Context, namespace string) ([]runnerapi.Source, error) {
	if err := b.enter(ctx, Call{Verb: "Sources.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []runnerapi.Source
	for key, s := range b.sources {
		if key.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out, nil
}

// Sync implements backend.Sources.
func (b fakeSources) Sync(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return b.source(ctx, Call{Verb: "Sources.Sync", Key: key, WriteOptions: opts})
}

// Rollback implements backend.Sources: the source is at the earlier commit at once.
func (b fakeSources) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.SourceRollback, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	s, err := b.source(ctx, Call{Verb: "Sources.Rollback", Key: key, WriteOptions: opts})
	if err != nil {
		return s, err
	}
	const since = "2026-01-02T03:04:05Z"
	was := s.Status.Commit
	s.Status.Commit = cmp.Or(to.Commit, strings.Repeat("decade12", 5))
	s.Status.Hold = &runnerapi.SourceHold{Commit: s.Status.Commit, After: was, Since: since}
	s.Status.History = s.Status.WithApplied(runnerapi.SourceCommit{Commit: s.Status.Commit, AppliedAt: since, Revision: 2})
	if opts.DryRun {
		return s, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sources[key] = s
	return s, nil
}

// Previews implements backend.Sources: a source has one preview, and one of a fork that waits for
// an approval.
func (b fakeSources) Previews(ctx context.Context, key runnerapi.Key) (runnerapi.SourcePreviewList, error) {
	s, err := b.source(ctx, Call{Verb: "Sources.Previews", Key: key})
	if err != nil || s.Spec.Previews == nil {
		return runnerapi.SourcePreviewList{Items: []runnerapi.SourcePreview{}}, err
	}
	const since, expires = "2026-01-02T03:04:05Z", "2026-01-09T03:04:05Z"
	mine := s.Preview(12, strings.Repeat("c0ffee12", 5))
	return runnerapi.SourcePreviewList{CheckedAt: since, Items: []runnerapi.SourcePreview{{
		Number: 12, Branch: "shiny", Commit: mine.Spec.Ref.Commit, State: runnerapi.PreviewActive, Namespace: mine.Namespace, Since: since, ExpiresAt: expires,
		Phase: runnerapi.SourceReady, URL: "https://web.apps.example.com",
	}, {
		Number: 13, Branch: "patch-1", Commit: strings.Repeat("decade12", 5), Fork: true, State: runnerapi.PreviewNeedsApproval, Since: since,
	}}}, nil
}

// ApprovePromotion implements backend.Sources.
func (b fakeSources) ApprovePromotion(ctx context.Context, key runnerapi.Key, _ runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return b.source(ctx, Call{Verb: "Sources.ApprovePromotion", Key: key, WriteOptions: opts})
}

// ApprovePreview implements backend.Sources.
func (b fakeSources) ApprovePreview(ctx context.Context, key runnerapi.Key, _ int64, _ runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return b.source(ctx, Call{Verb: "Sources.ApprovePreview", Key: key, WriteOptions: opts})
}

// Delete implements backend.Sources.
func (b fakeSources) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	if _, err := b.source(ctx, Call{Verb: "Sources.Delete", Key: key, WriteOptions: opts}); err != nil || opts.DryRun {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sources, key)
	return nil
}
