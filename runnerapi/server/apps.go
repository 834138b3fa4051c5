package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type appOutput struct {
	Status int
	Body   runnerapi.App
}

type appListOutput struct{ Body runnerapi.AppList }

// emptyOutput is an answer without a body: 204.
type emptyOutput struct{}

func (s *server) appRoutes() {
	registerLong(s, s.mayWait(operation("put-app", "Apps", "Deploy an App",
		"Creates the App or replaces its spec. Replicas and autoscaling stay where the spec names neither, and paused where it does not name that. "+
			"The agent reads and writes the App in one step, so a scale in between is not lost. The policy is asked about the spec with what stays.", runnerapi.MaxAppBody)), s.putApp)
	registerLong(s, operation("get-app", "Apps", "Get an App",
		"The spec, the status and, when something is wrong, the diagnosis.", 0), s.getApp)
	register(s, operation("delete-app", "Apps", "Delete an App",
		"Removes the App and exactly what it made.", 0), s.deleteApp)
	register(s, operation("list-apps", "Apps", "List all Apps",
		"The Apps of all namespaces that the agent manages and the customer's policy lets the Runner see.", 0), s.listAllApps)
	register(s, operation("list-namespace-apps", "Apps", "List the Apps of a namespace",
		"Each with its spec, status and diagnosis.", 0), s.listApps)
	registerLong(s, s.mayWait(operation("scale-app", "Apps", "Scale an App",
		"Sets the number of pods of a Deployment or StatefulSet, or the bounds of its autoscaling.", maxSmallBody)), s.scaleApp)
	registerLong(s, s.mayWait(operation("restart-app", "Apps", "Restart an App",
		"Replaces all pods, a few at a time; a Job it runs again. With an Idempotency-Key it restarts once, however often it is sent.", 0)), s.restartApp)
}

func (s *server) putApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Deploy
	params.Wait
	Body runnerapi.AppSpec
}) (*appOutput, error) {
	if err := invalid(slices.Concat(in.Body.ValidateName(in.Name), in.Body.Validate(), in.Body.Mistakes())); err != nil {
		return nil, err
	}
	if err := s.bringApp(ctx, in.Body); err != nil {
		return nil, err
	}
	if in.Adopt {
		if err := s.bring(ctx, func(i *runnerapi.Intent) { i.Command, i.Access = runnerapi.AdoptApp, runnerapi.Named }); err != nil {
			return nil, err
		}
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		opts.Adopt = in.Adopt
		return s.Apps.Deploy(ctx, appKey(in.App), in.Body, opts)
	})
}

func (s *server) getApp(ctx context.Context, in *struct {
	params.App
	params.Wait
	Generation int64 `query:"generation" minimum:"0" doc:"With wait: the generation whose outcome to wait for."`
}) (*appOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	app, err := limited(ctx, s.CallTimeout, func(ctx context.Context) (runnerapi.App, error) { return s.Apps.Get(ctx, appKey(in.App)) })
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, app, max(app.Generation, in.Generation), wait, http.StatusOK)
}

func (s *server) deleteApp(ctx context.Context, in *struct {
	params.App
	params.Write
}) (*emptyOutput, error) {
	return &emptyOutput{}, s.Apps.Delete(ctx, appKey(in.App), s.writeOptions(ctx, in.Write))
}

func (s *server) listAllApps(ctx context.Context, _ *struct{}) (*appListOutput, error) {
	items, err := s.Apps.List(ctx, "")
	items = seen(ctx, s, items, func(a runnerapi.App) string { return a.Namespace })
	return &appListOutput{Body: runnerapi.AppList{Items: notNil(items)}}, err
}

func (s *server) listApps(ctx context.Context, in *params.Namespace) (*appListOutput, error) {
	items, err := s.Apps.List(ctx, in.Namespace)
	return &appListOutput{Body: runnerapi.AppList{Items: notNil(items)}}, err
}

func (s *server) scaleApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
	Body runnerapi.Scale
}) (*appOutput, error) {
	if err := invalid(in.Body.Validate()); err != nil {
		return nil, err
	}
	if err := s.bring(ctx, func(i *runnerapi.Intent) { i.Scale = &in.Body }); err != nil {
		return nil, err
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.Apps.Scale(ctx, appKey(in.App), in.Body, opts)
	})
}

func (s *server) restartApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.Apps.Restart(ctx, appKey(in.App), opts)
	})
}

// write carries out a command on an App and waits for its outcome if asked to.
func (s *server) write(ctx context.Context, key runnerapi.Key, wp params.Write, wait params.Wait,
	command func(context.Context, runnerapi.WriteOptions) (runnerapi.App, error),
) (*appOutput, error) {
	d, err := wait.Duration()
	if err != nil {
		return nil, err
	}
	op := commandFrom(ctx)
	app, err := limited(ctx, s.CallTimeout, func(ctx context.Context) (runnerapi.App, error) {
		if op != nil && op.known {
			return s.Apps.Get(ctx, key)
		}
		return command(ctx, s.writeOptions(ctx, wp))
	})
	if err != nil {
		return nil, err
	}
	if wp.DryRun {
		return &appOutput{Status: http.StatusOK, Body: app}, nil
	}
	app.Namespace, app.Name = key.Namespace, key.Name
	if op == nil {
		return s.settle(ctx, app, app.Generation, d, http.StatusAccepted)
	}
	if !op.known {
		s.accepted(ctx, op, app)
	}
	out, err := s.settle(ctx, app, op.App.Generation, d, http.StatusAccepted)
	if err != nil {
		return nil, err
	}
	out.Body.Operation = op.ID
	if d > 0 {
		err = s.addOutcome(ctx, op, out)
	}
	return out, err
}

// addOutcome adds to the answer what became of the command itself: a later one may have come while
// the call waited, and the App's status then describes that one.
func (s *server) addOutcome(ctx context.Context, op *command, out *appOutput) error {
	if s.Outcomes == nil {
		return nil
	}
	outcome, err := limited(ctx, s.CallTimeout, func(ctx context.Context) (runnerapi.Outcome, error) { return s.Outcomes.Outcome(ctx, op.Record) })
	if err != nil {
		return err
	}
	out.Body.Outcome = &outcome
	if outcome.State != runnerapi.OperationPending {
		out.Status = http.StatusOK
	}
	return nil
}

// settle answers 200 with the outcome. It answers with the given status if there is no outcome
// after the time to wait, or when the agent shuts down.
func (s *server) settle(ctx context.Context, app runnerapi.App, generation int64, wait time.Duration, otherwise int) (*appOutput, error) {
	settled := func() bool { return app.Settled() && app.Generation >= generation }
	if wait > 0 && !settled() {
		ctx, cancel := untilDrain(ctx)
		defer cancel()
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		newest, err := s.Apps.Wait(ctx, runnerapi.Key{Namespace: app.Namespace, Name: app.Name}, generation)
		switch {
		case err == nil:
			app = newest
		case ctx.Err() == nil:
			return nil, err
		}
	}
	if settled() {
		otherwise = http.StatusOK
	}
	return &appOutput{Status: otherwise, Body: app}, nil
}

// limited bounds the part of a call that does not wait.
func limited[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// notNil makes an empty list an empty list in JSON too.
func notNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
