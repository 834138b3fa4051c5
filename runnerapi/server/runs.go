package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

// What Jobs and Pipelines, the Apps that run to an end, have in common.

type (
	putRunInput[S runSpec] struct {
		params.App
		params.Write
		params.Wait
		Body S
	}
	getRunInput struct {
		params.App
		params.Wait
		Generation int64 `query:"generation" minimum:"0" doc:"With wait: the generation whose outcome to wait for."`
	}
	deleteRunInput struct {
		params.App
		params.Write
	}
	runOutput[T any] struct {
		Status int
		Body   T
	}
)

// runSpec is a JobSpec or a PipelineSpec.
type runSpec interface {
	AppSpec() runnerapi.AppSpec
	Validate() []runnerapi.FieldError
}

// inWords answers with an App in the form of its type.
func inWords[T any](app *appOutput, err error, of func(runnerapi.App) T) (*runOutput[T], error) {
	if err != nil {
		return nil, err
	}
	return &runOutput[T]{Status: app.Status, Body: of(app.Body)}, nil
}

// putRun deploys the App that a Job or Pipeline is, if the policy allows it.
func putRun[S runSpec](ctx context.Context, s *appWork, in *putRunInput[S]) (*appOutput, error) {
	spec := in.Body.AppSpec()
	spec.Paused = new(bool) // a run's spec is complete, and must not inherit an earlier pause
	if err := invalid(slices.Concat(spec.ValidateName(in.Name), in.Body.Validate(), spec.Mistakes())); err != nil {
		return nil, err
	}
	if err := s.guard.BringApp(ctx, spec); err != nil {
		return nil, err
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.apps.Deploy(ctx, appKey(in.App), spec, opts)
	})
}

func (s *appWork) getRun(ctx context.Context, in *getRunInput, kind runnerapi.AppType) (*appOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	app, err := s.run(ctx, appKey(in.App), kind, wait)
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, app, max(app.Generation, in.Generation), wait, http.StatusOK)
}

// run returns an App of this type; one of another is none.
func (s *appWork) run(ctx context.Context, key runnerapi.Key, kind runnerapi.AppType, wait time.Duration) (runnerapi.App, error) {
	app, err := s.read(ctx, key, wait)
	if problem.Is(err, problem.NotFound) {
		return runnerapi.App{}, problem.Errorf(problem.NotFound, "check the name and the namespace, or run it first", "there is no %s %s", kind, key)
	}
	if err != nil || app.Spec.Type == kind {
		return app, err
	}
	return runnerapi.App{}, problem.Errorf(problem.NotFound, "check the name; what is there under it is for the calls on Apps, at /v1/namespaces/"+key.Namespace+"/apps/"+key.Name,
		"there is no %s %s, but a %s", kind, key, app.Spec.Type)
}

func listRuns[T any](ctx context.Context, s *appWork, namespace string, kind runnerapi.AppType, of func(runnerapi.App) T) ([]T, error) {
	apps, err := s.apps.List(ctx, namespace)
	items := []T{}
	for _, app := range apps {
		if app.Spec.Type == kind {
			items = append(items, of(app))
		}
	}
	return items, err
}

func (s *appWork) deleteRun(kind runnerapi.AppType) func(context.Context, *deleteRunInput) (*emptyOutput, error) {
	return func(ctx context.Context, in *deleteRunInput) (*emptyOutput, error) {
		if _, err := s.run(ctx, appKey(in.App), kind, 0); err != nil {
			return nil, err
		}
		return &emptyOutput{}, s.apps.Delete(ctx, appKey(in.App), s.writeOptions(ctx, in.Write))
	}
}
