package runnerapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type (
	jobOutput struct {
		Status int
		Body   Job
	}
	jobListOutput struct{ Body JobList }
)

const (
	jobsPattern = "/namespaces/{namespace}/jobs"
	jobPattern  = jobsPattern + "/{name}"
)

func (s *server) jobRoutes() {
	registerLong(s, s.mayWaitFor(operation("put-job", http.MethodPut, jobPattern, "Jobs", "Run a Job",
		"Runs it once. The same again changes nothing; another spec, or another name of its run, runs it anew after the run before has been removed. "+
			"With wait it answers when the Job has ended, or cannot go on.", MaxAppBody), reflect.TypeFor[Job]()), s.putJob)
	registerLong(s, operation("get-job", http.MethodGet, jobPattern, "Jobs", "Get a Job",
		"How it stands: its state, tries, exit code and, when something is wrong, the diagnosis with the last lines of its log.", 0), s.getJob)
	register(s, operation("list-jobs", http.MethodGet, jobsPattern, "Jobs", "List the Jobs of a namespace",
		"Each with its spec and status.", 0), s.listJobs)
	register(s, operation("delete-job", http.MethodDelete, jobPattern, "Jobs", "Delete a Job",
		"Stops it if it runs, and removes it with its pods.", 0), s.deleteRun(TypeJob))
	s.registerLog(operation("get-job-logs", http.MethodGet, jobPattern+"/logs", "Jobs", "Read a Job's log",
		"The lines of all tries, interleaved by time, for as long as their pods are there. With follow it ends when the Job does. Where the log breaks off, the last line says why, in an object with the key \"error\".", 0), TypeJob)
}

func (s *server) putJob(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
	Body JobSpec
}) (*jobOutput, error) {
	spec := in.Body.AppSpec()
	if err := invalid(append(spec.ValidateName(in.Name), in.Body.Validate()...)); err != nil {
		return nil, err
	}
	out, err := s.putRun(ctx, in.App, in.Write, in.Wait, spec)
	if err != nil {
		return nil, err
	}
	return &jobOutput{Status: out.Status, Body: JobOf(out.Body)}, nil
}

// putRun deploys the App that a Job or Pipeline is, if the policy allows it.
func (s *server) putRun(ctx context.Context, at params.App, write params.Write, wait params.Wait, spec AppSpec) (*appOutput, error) {
	if err := s.bringApp(ctx, spec); err != nil {
		return nil, err
	}
	return s.write(ctx, appKey(at), write, wait, func(ctx context.Context, opts WriteOptions) (App, error) {
		return s.Apps.Deploy(ctx, appKey(at), spec, opts)
	})
}

type getRunInput struct {
	params.App
	params.Wait
	Generation int64 `query:"generation" minimum:"0" doc:"With wait: the generation whose outcome to wait for."`
}

func (s *server) getJob(ctx context.Context, in *getRunInput) (*jobOutput, error) {
	out, err := s.getRun(ctx, in, TypeJob)
	if err != nil {
		return nil, err
	}
	return &jobOutput{Status: out.Status, Body: JobOf(out.Body)}, nil
}

func (s *server) getRun(ctx context.Context, in *getRunInput, kind AppType) (*appOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	app, err := s.run(ctx, appKey(in.App), kind)
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, app, max(app.Generation, in.Generation), wait, http.StatusOK)
}

// run is an App of this type; one of another is none.
func (s *server) run(ctx context.Context, key Key, kind AppType) (App, error) {
	app, err := limited(ctx, s.CallTimeout, func(ctx context.Context) (App, error) { return s.Apps.Get(ctx, key) })
	if err != nil || app.Spec.Type == kind {
		return app, err
	}
	return App{}, problem.Errorf(problem.NotFound, "check the name; what is there under it is for the calls on Apps, at /v1/namespaces/"+key.Namespace+"/apps/"+key.Name,
		"there is no %s %s, but a %s", kind, key, app.Spec.Type)
}

func (s *server) listJobs(ctx context.Context, in *params.Namespace) (*jobListOutput, error) {
	items, err := listRuns(ctx, s, in.Namespace, TypeJob, JobOf)
	return &jobListOutput{Body: JobList{Items: items}}, err
}

func listRuns[T any](ctx context.Context, s *server, namespace string, kind AppType, of func(App) T) ([]T, error) {
	apps, err := s.Apps.List(ctx, namespace)
	items := []T{}
	for _, app := range apps {
		if app.Spec.Type == kind {
			items = append(items, of(app))
		}
	}
	return items, err
}

type deleteRunInput struct {
	params.App
	params.Write
}

func (s *server) deleteRun(kind AppType) func(context.Context, *deleteRunInput) (*emptyOutput, error) {
	return func(ctx context.Context, in *deleteRunInput) (*emptyOutput, error) {
		if _, err := s.run(ctx, appKey(in.App), kind); err != nil {
			return nil, err
		}
		return &emptyOutput{}, s.Apps.Delete(ctx, appKey(in.App), s.writeOptions(ctx, in.Write))
	}
}
