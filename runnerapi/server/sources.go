package server

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type (
	sourceOutput     struct{ Body runnerapi.Source }
	sourceListOutput struct{ Body runnerapi.SourceList }

	previewListOutput struct{ Body runnerapi.SourcePreviewList }
)

// sourceCalls are the calls about Git sources.
type sourceCalls struct {
	*calls
	sources backend.Sources
}

func (s *sourceCalls) routes() {
	register(s.calls, alsoRefuses(operation("put-source", "Git", "Follow a Git repository",
		"Has the agent apply what is in the repository, now and with each new commit, in the name of this Runner and within the policy at that time. "+
			"What comes of it is in the status. A dry run gets the repository and tries all of it. "+
			"The customer's policy has to name this command, and the agent needs deployments/sources.yaml: see docs/deployer/git.md.", runnerapi.MaxSecretBody), http.StatusNotImplemented), s.putSource)
	register(s.calls, alsoRefuses(operation("get-source", "Git", "Get a Git source",
		"With the commit that is applied, and the last error.", 0), http.StatusNotImplemented), s.getSource)
	register(s.calls, alsoRefuses(operation("list-sources", "Git", "List the Git sources of a namespace",
		"With the commits that are applied, and their last errors.", 0), http.StatusNotImplemented), s.listSources)
	register(s.calls, alsoRefuses(operation("sync-source", "Git", "Look at a Git repository now",
		"Gets the newest commit and applies it again, also when it is applied already. The status is Pending until that is done.", 0), http.StatusNotImplemented), s.syncSource)
	register(s.calls, alsoRefuses(operation("rollback-source", "Git", "Roll a Git source back",
		"Applies a commit that was applied before, by default the one before the current one, and holds the source there until there is a commit newer than the newest of now. "+
			"sync-source and put-source end the hold. A dry run gets the commit and tries all of it. With an Idempotency-Key it is done once, however often it is sent.", request.MaxSmallBody), http.StatusNotImplemented), s.rollbackSource)
	register(s.calls, alsoRefuses(operation("approve-promotion", "Git", "Allow the promotion of a commit",
		"With promote.approval, a Git source follows another one's commit only once a Runner has approved it, by all its digits. The customer's policy has to name this command.", request.MaxSmallBody), http.StatusNotImplemented), s.approvePromotion)
	register(s.calls, alsoRefuses(operation("list-source-previews", "Git", "List the previews of a Git source",
		"The open pull or merge requests of its repository, with where they are deployed, or why they are not.", 0), http.StatusNotImplemented), s.listPreviews)
	register(s.calls, alsoRefuses(operation("approve-preview", "Git", "Allow a preview of a fork's commit",
		"A request from another repository has no preview until a Runner has allowed its commit, by all its digits. The customer's policy has to name this command.", request.MaxSmallBody), http.StatusNotImplemented), s.approvePreview)
	register(s.calls, alsoRefuses(operation("delete-source", "Git", "Stop following a Git repository",
		"What it has brought stays. Its previews are deleted.", 0), http.StatusNotImplemented), s.deleteSource)
}

func (s *sourceCalls) putSource(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body runnerapi.SourceSpec
}) (*sourceOutput, error) {
	bad := in.Body.Validate(in.Name)
	if in.Body.Build != nil {
		bad = append(bad, in.Body.Build.Mistakes("build.resources")...)
	}
	if err := invalid(bad); err != nil {
		return nil, err
	}
	source, err := s.sources.Set(ctx, objectKey(in.Object), in.Body, s.writeOptions(ctx, in.Write))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) getSource(ctx context.Context, in *params.Object) (*sourceOutput, error) {
	source, err := s.sources.Get(ctx, objectKey(*in))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) listSources(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*sourceListOutput, error) {
	items, err := s.sources.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Source) string { return keyOf(o.Namespace, o.Name) })
	return &sourceListOutput{Body: runnerapi.SourceList{Items: items, Page: rest}}, err
}

func (s *sourceCalls) syncSource(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*sourceOutput, error) {
	source, err := s.sources.Sync(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) rollbackSource(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body *runnerapi.SourceRollback
}) (*sourceOutput, error) {
	var to runnerapi.SourceRollback
	if in.Body != nil {
		to = *in.Body
	}
	source, err := s.sources.Rollback(ctx, objectKey(in.Object), to, s.writeOptions(ctx, in.Write))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) approvePromotion(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body runnerapi.CommitApproval
}) (*sourceOutput, error) {
	source, err := s.sources.ApprovePromotion(ctx, objectKey(in.Object), in.Body, s.writeOptions(ctx, in.Write))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) listPreviews(ctx context.Context, in *params.Object) (*previewListOutput, error) {
	list, err := s.sources.Previews(ctx, objectKey(*in))
	return &previewListOutput{Body: list}, err
}

func (s *sourceCalls) approvePreview(ctx context.Context, in *struct {
	params.Object
	params.Write
	Number int64 `path:"number" minimum:"1" doc:"Number of the pull or merge request."`
	Body   runnerapi.CommitApproval
}) (*sourceOutput, error) {
	source, err := s.sources.ApprovePreview(ctx, objectKey(in.Object), in.Number, in.Body, s.writeOptions(ctx, in.Write))
	return &sourceOutput{Body: source}, err
}

func (s *sourceCalls) deleteSource(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.sources.Delete(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}
