package server

import (
	"context"
	"reflect"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type pipelineListOutput struct{ Body runnerapi.PipelineList }

// pipelineCalls are the calls about Pipelines.
type pipelineCalls struct {
	*appWork
}

func (s *pipelineCalls) routes() {
	registerLong(s.calls, s.mayWaitFor(operation("put-pipeline", "Pipelines", "Run a Pipeline",
		"Runs its jobs one after the other, and stops at the first that fails. The same again changes nothing; another spec, or another name of its run, "+
			"runs it again from the first job on, after the run before has been removed. With wait it answers when the Pipeline has ended, or cannot go on.",
		runnerapi.MaxAppBody), reflect.TypeFor[runnerapi.Pipeline]()), s.putPipeline)
	registerLong(s.calls, operation("get-pipeline", "Pipelines", "Get a Pipeline",
		"How it and each of its jobs stand, which one failed, and why.", 0), s.getPipeline)
	register(s.calls, operation("list-pipelines", "Pipelines", "List the Pipelines of a namespace",
		"Each with its spec and status.", 0), s.listPipelines)
	register(s.calls, operation("delete-pipeline", "Pipelines", "Delete a Pipeline",
		"Stops the running job, and removes the Pipeline with all its pods.", 0), s.deleteRun(runnerapi.TypePipeline))
	s.registerLog(operation("get-pipeline-logs", "Pipelines", "Read a Pipeline's log",
		"The lines of all its jobs, interleaved by time, for as long as their pods are there; a pod's name has that of its job in it. With follow it ends when the Pipeline does. Where the log breaks off, the last line says why, in an object with the key \"error\".", 0), runnerapi.TypePipeline)
}

func (s *pipelineCalls) putPipeline(ctx context.Context, in *putRunInput[runnerapi.PipelineSpec]) (*runOutput[runnerapi.Pipeline], error) {
	out, err := putRun(ctx, s.appWork, in)
	return inWords(out, err, runnerapi.PipelineOf)
}

func (s *pipelineCalls) getPipeline(ctx context.Context, in *getRunInput) (*runOutput[runnerapi.Pipeline], error) {
	out, err := s.getRun(ctx, in, runnerapi.TypePipeline)
	return inWords(out, err, runnerapi.PipelineOf)
}

func (s *pipelineCalls) listPipelines(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*pipelineListOutput, error) {
	items, err := listRuns(ctx, s.appWork, in.Namespace.Namespace, runnerapi.TypePipeline, runnerapi.PipelineOf)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Pipeline) string { return keyOf(o.Namespace, o.Name) })
	return &pipelineListOutput{Body: runnerapi.PipelineList{Items: items, Page: rest}}, err
}
