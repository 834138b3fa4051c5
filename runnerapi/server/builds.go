package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type (
	buildOutput struct {
		Status int
		Body   runnerapi.Build
	}
	buildListOutput struct{ Body runnerapi.BuildList }
)

// buildCalls are the calls about builds.
type buildCalls struct {
	*calls
	builds backend.Builds
}

func (s *buildCalls) routes() {
	register(s.calls, mayGoOn(alsoRefuses(operation("put-build", "Builds", "Build an image",
		"Builds an image in the cluster from a Dockerfile of a Git repository, and pushes it. The same spec and run again start nothing; "+
			"another one is refused while a run is in progress. Answers 202 with a run that has begun. "+
			"The customer's policy has to name this command, and the namespace has to allow builds: see docs/deployer/builds.md.", request.MaxSmallBody), http.StatusNotImplemented)), s.putBuild)
	register(s.calls, operation("get-build", "Builds", "Get a build",
		"The newest run: how far it is, the image by its digest, or why there is none; and the runs before.", 0), s.getBuild)
	register(s.calls, operation("delete-build", "Builds", "Cancel and delete a build",
		"Ends the run that is in progress and removes all runs. Images that were pushed stay in the registry.", 0), s.deleteBuild)
	register(s.calls, operation("list-builds", "Builds", "List the builds of a namespace",
		"The newest run of each.", 0), s.listBuilds)
	s.buildLogRoute()
}

func (s *buildCalls) putBuild(ctx context.Context, in *struct {
	params.Object
	params.Write
	Body runnerapi.BuildSpec
}) (*buildOutput, error) {
	if err := invalid(append(in.Body.Validate(in.Name), in.Body.Mistakes("resources")...)); err != nil {
		return nil, err
	}
	if err := s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Build = &in.Body }); err != nil {
		return nil, err
	}
	build, err := s.builds.Run(ctx, objectKey(in.Object), in.Body, s.writeOptions(ctx, in.Write))
	status := http.StatusAccepted
	if in.DryRun || build.Status.Phase.Ended() {
		status = http.StatusOK
	}
	return &buildOutput{Status: status, Body: build}, err
}

func (s *buildCalls) getBuild(ctx context.Context, in *params.Object) (*buildOutput, error) {
	build, err := s.builds.Get(ctx, objectKey(*in))
	return &buildOutput{Status: http.StatusOK, Body: build}, err
}

func (s *buildCalls) deleteBuild(ctx context.Context, in *struct {
	params.Object
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.builds.Delete(ctx, objectKey(in.Object), s.writeOptions(ctx, in.Write))
}

func (s *buildCalls) listBuilds(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*buildListOutput, error) {
	items, err := s.builds.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Build) string { return keyOf(o.Namespace, o.Name) })
	return &buildListOutput{Body: runnerapi.BuildList{Items: items, Page: rest}}, err
}

// buildLogsInput selects the lines of a build's log: one pod has it, with containers that run
// one after the other.
type buildLogsInput struct {
	params.Object
	params.Logs
}

func (s *buildCalls) buildLogRoute() {
	huma.Register(s.api, s.sendsLog(operation("build-logs", "Builds", "Read a build's log",
		"The newest run's lines as they come: of the fetch, of the Dockerfile's steps, of the push. With follow until the run has ended. "+
			"Where the log breaks off, the last line says why, in an object with the key \"error\".", 0)), s.getBuildLogs)
}

func (s *buildCalls) getBuildLogs(ctx context.Context, in *buildLogsInput) (*streamOutput, error) {
	opts, err := (&logsInput{Logs: in.Logs}).options()
	if err != nil {
		return nil, s.wireError(ctx, err)
	}
	return s.sendLogOf(ctx, in.Accept, opts, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		return s.builds.Logs(ctx, objectKey(in.Object), opts, emit)
	}), nil
}
