package server

import (
	"context"
	"reflect"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type jobListOutput struct{ Body runnerapi.JobList }

// jobCalls are the calls about Jobs.
type jobCalls struct {
	*appWork
}

func (s *jobCalls) routes() {
	registerLong(s.calls, s.mayWaitFor(operation("put-job", "Jobs", "Run a Job",
		"Runs it once. The same again changes nothing; another spec, or another name of its run, runs it again after the run before has been removed. "+
			"With wait it answers when the Job has ended, or cannot go on.", runnerapi.MaxAppBody), reflect.TypeFor[runnerapi.Job]()), s.putJob)
	registerLong(s.calls, operation("get-job", "Jobs", "Get a Job",
		"How it stands: its state, tries, exit code and, when something is wrong, the diagnosis with the last lines of its log.", 0), s.getJob)
	register(s.calls, operation("list-jobs", "Jobs", "List the Jobs of a namespace",
		"Each with its spec and status.", 0), s.listJobs)
	register(s.calls, operation("delete-job", "Jobs", "Delete a Job",
		"Stops it if it runs, and removes it with its pods.", 0), s.deleteRun(runnerapi.TypeJob))
	s.registerLog(operation("get-job-logs", "Jobs", "Read a Job's log",
		"The lines of all tries, interleaved by time, for as long as their pods are there. With follow it ends when the Job does. Where the log breaks off, the last line says why, in an object with the key \"error\".", 0), runnerapi.TypeJob)
}

func (s *jobCalls) putJob(ctx context.Context, in *putRunInput[runnerapi.JobSpec]) (*runOutput[runnerapi.Job], error) {
	out, err := putRun(ctx, s.appWork, in)
	return inWords(out, err, runnerapi.JobOf)
}

func (s *jobCalls) getJob(ctx context.Context, in *getRunInput) (*runOutput[runnerapi.Job], error) {
	out, err := s.getRun(ctx, in, runnerapi.TypeJob)
	return inWords(out, err, runnerapi.JobOf)
}

func (s *jobCalls) listJobs(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*jobListOutput, error) {
	items, err := listRuns(ctx, s.appWork, in.Namespace.Namespace, runnerapi.TypeJob, runnerapi.JobOf)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Job) string { return keyOf(o.Namespace, o.Name) })
	return &jobListOutput{Body: runnerapi.JobList{Items: items, Page: rest}}, err
}
