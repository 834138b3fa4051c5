package server

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/once"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

func appKey(p params.App) runnerapi.Key { return runnerapi.Key{Namespace: p.Namespace, Name: p.Name} }

func objectKey(p params.Object) runnerapi.Key {
	return runnerapi.Key{Namespace: p.Namespace, Name: p.Name}
}

// calls is what all calls share.
type calls struct {
	api      huma.API
	timeout  time.Duration // of a call that neither waits nor streams
	stall    time.Duration // how long a reader may read nothing
	guard    *guard.Guard
	commands *once.Commands
	bodies   *request.Bodies
	log      zerolog.Logger
}

func (s *calls) writeOptions(ctx context.Context, p params.Write) runnerapi.WriteOptions {
	opts := runnerapi.WriteOptions{DryRun: p.DryRun, IdempotencyKey: p.IdempotencyKey, Caller: request.Caller(ctx)}
	if c := once.From(ctx); c != nil {
		opts.Command = c.Name()
		opts.Answered = func(ctx context.Context) (bool, error) { return s.commands.AnsweredElsewhere(ctx, c) }
	}
	opts.Admit = func(spec runnerapi.AppSpec) error { return s.guard.BringApp(ctx, spec) }
	return opts
}

// statuses that any call may answer with.
var anyCall = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusUnprocessableEntity,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

var anyWrite = append([]int{http.StatusConflict}, anyCall...)

// operation returns a call of the table with what calls of the same kind share. bodyLimit is zero
// for a call without a body.
func operation(id, tag, summary, text string, bodyLimit int64) huma.Operation {
	call := runnerapi.CallOf(id)
	op := huma.Operation{
		OperationID: id, Method: call.Method, Path: call.Path, Tags: []string{tag},
		Summary: summary, Description: text, Errors: slices.Clone(anyCall), // huma appends to it
		MaxBodyBytes: -1, BodyReadTimeout: -1, // WithBody does both
		Metadata: map[string]any{bodyLimitOf: bodyLimit},
	}
	if call.Method != http.MethodGet {
		op.Errors = slices.Clone(anyWrite)
	}
	op.Middlewares = huma.Middlewares{humaproblem.Plain, decode.Bodyless}
	if bodyLimit > 0 {
		op.Middlewares = huma.Middlewares{humaproblem.Plain, decode.WithBody(bodyLimit)}
	}
	return op
}

// mayWait documents the answer 202 of a call that has a wait parameter.
func (s *calls) mayWait(op huma.Operation) huma.Operation {
	return s.mayWaitFor(op, reflect.TypeFor[runnerapi.App]())
}

// mayWaitFor is like mayWait for an App that is answered as another type.
func (s *calls) mayWaitFor(op huma.Operation, answer reflect.Type) huma.Operation {
	op.Metadata[once.AnswersApp] = true
	schema := s.api.OpenAPI().Components.Schemas.Schema(answer, true, answer.Name())
	op.Responses = map[string]*huma.Response{
		"200": {
			Description: "The outcome: the newest spec has settled, well or not, or a later change has superseded the command, or it was a dry run.",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
		},
		"202": {
			Description: "Accepted; it continues.",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
		},
	}
	return op
}

// register adds a call that is bounded by the call timeout.
func register[I, O any](s *calls, op huma.Operation, call func(context.Context, *I) (*O, error)) {
	registerLong(s, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		return call(ctx, in)
	})
}

// registerLong adds a call that bounds itself, because it waits.
func registerLong[I, O any](s *calls, op huma.Operation, call func(context.Context, *I) (*O, error)) {
	op.Middlewares = append(huma.Middlewares{s.writeDeadline, s.bodies.Bound}, op.Middlewares...)
	if op.Method != http.MethodGet {
		op.Middlewares = append(op.Middlewares, s.commands.Once)
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := call(ctx, in)
		if err != nil {
			return nil, s.wireError(ctx, err)
		}
		return out, nil
	})
}

// writeTimeout is for an answer that is not a stream to be read.
const writeTimeout = time.Minute

// writeDeadline keeps a caller that does not take its answer from holding the
// call for ever.
func (s *calls) writeDeadline(ctx huma.Context, next func(huma.Context)) {
	_, w := humachi.Unwrap(ctx)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(runnerapi.MaxWait + s.timeout + writeTimeout))
	next(ctx)
}

// wireError returns what may be sent about err, and logs err if that is not everything.
func (s *calls) wireError(ctx context.Context, err error) *runnerapi.Error {
	return request.Error(ctx, s.log, err)
}

// invalid turns fields at fault into one answer.
func invalid(fields []runnerapi.FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	e := problem.Errorf(problem.Invalid, problem.CorrectField, "%s", fields[0].Message).
		WithField(fields[0].Field)
	if len(fields) > 1 {
		e.Fields = fields
	}
	return e
}
