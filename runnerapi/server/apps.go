package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type appOutput struct {
	Status int
	Body   runnerapi.App
}

type appListOutput struct{ Body runnerapi.AppList }

// emptyOutput is an answer without a body: 204.
type emptyOutput struct{}

// appCalls are the calls about Apps.
type appCalls struct {
	*appWork
}

func (s *appCalls) routes() {
	put := operation("put-app", "Apps", "Deploy an App",
		"Creates the App or replaces its spec. Replicas and autoscaling stay where the spec names neither, and paused where it does not name that. "+
			"The agent reads and writes the App in one step, so a scale in between is not lost. The policy is asked about the spec with what stays. "+
			"With If-Match it refuses a spec that was made from another generation.", runnerapi.MaxAppBody)
	put.Errors = append(put.Errors, http.StatusPreconditionFailed)
	registerLong(s.calls, s.mayWait(put), s.putApp)
	registerLong(s.calls, operation("get-app", "Apps", "Get an App",
		"The spec, the status and, when something is wrong, the diagnosis.", 0), s.getApp)
	register(s.calls, operation("delete-app", "Apps", "Delete an App",
		"Removes the App and exactly what it made.", 0), s.deleteApp)
	register(s.calls, operation("list-apps", "Apps", "List all Apps",
		"The Apps of all namespaces that the agent manages and the customer's policy lets the Runner see.", 0), s.listAllApps)
	register(s.calls, operation("list-namespace-apps", "Apps", "List the Apps of a namespace",
		"Each with its spec, status and diagnosis.", 0), s.listApps)
	registerLong(s.calls, s.mayWait(operation("scale-app", "Apps", "Scale an App",
		"Sets the number of pods of a Deployment or StatefulSet, or the bounds of its autoscaling.", request.MaxSmallBody)), s.scaleApp)
	registerLong(s.calls, s.mayWait(operation("restart-app", "Apps", "Restart an App",
		"Replaces all pods, a few at a time; a Job it runs again. With an Idempotency-Key it restarts once, however often it is sent.", 0)), s.restartApp)
}

func (s *appCalls) putApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Deploy
	params.Wait
	Body runnerapi.AppSpec
}) (*appOutput, error) {
	if err := invalid(slices.Concat(in.Body.ValidateName(in.Name), in.Body.Validate(), in.Body.Mistakes())); err != nil {
		return nil, err
	}
	if err := s.guard.BringApp(ctx, in.Body); err != nil {
		return nil, err
	}
	if in.Adopt {
		if err := s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Command, i.Access = runnerapi.AdoptApp, runnerapi.Named }); err != nil {
			return nil, err
		}
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		opts.Adopt, opts.Generation = in.Adopt, in.Generation()
		return s.apps.Deploy(ctx, appKey(in.App), in.Body, opts)
	})
}

func (s *appCalls) getApp(ctx context.Context, in *struct {
	params.App
	params.Wait
	Generation int64 `query:"generation" minimum:"0" doc:"With wait: the generation whose outcome to wait for."`
}) (*appOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	app, err := s.read(ctx, appKey(in.App), wait)
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, app, max(app.Generation, in.Generation), wait, http.StatusOK)
}

func (s *appCalls) deleteApp(ctx context.Context, in *struct {
	params.App
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.apps.Delete(ctx, appKey(in.App), s.writeOptions(ctx, in.Write))
}

func (s *appCalls) listAllApps(ctx context.Context, in *struct{ params.Page }) (*appListOutput, error) {
	items, err := s.apps.List(ctx, "")
	items = guard.Seen(ctx, s.guard, items, func(a runnerapi.App) string { return a.Namespace })
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.App) string { return keyOf(o.Namespace, o.Name) })
	return &appListOutput{Body: runnerapi.AppList{Items: items, Page: rest}}, err
}

func (s *appCalls) listApps(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*appListOutput, error) {
	items, err := s.apps.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.App) string { return keyOf(o.Namespace, o.Name) })
	return &appListOutput{Body: runnerapi.AppList{Items: items, Page: rest}}, err
}

func (s *appCalls) scaleApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
	Body runnerapi.Scale
}) (*appOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	if err := s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Scale = &in.Body }); err != nil {
		return nil, err
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.apps.Scale(ctx, appKey(in.App), in.Body, opts)
	})
}

func (s *appCalls) restartApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.apps.Restart(ctx, appKey(in.App), opts)
	})
}

// notNil makes an empty list an empty list in JSON too.
func notNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
