package server

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

type logsInput struct {
	params.App
	params.Logs
}

type streamOutput struct {
	Body func(huma.Context)
}

func (in *logsInput) options() (runnerapi.LogOptions, error) {
	opts, err := lineOptions(in.Lines)
	if err == nil && in.Follow && in.Previous {
		err = problem.Errorf(problem.Invalid, "leave out one of the two", "a run that is over cannot be followed").WithField("query.previous")
	}
	opts.Previous, opts.Container = in.Previous, in.Container
	return opts, err
}

// lineOptions returns what every log takes.
func lineOptions(in params.Lines) (runnerapi.LogOptions, error) {
	since, err := parseSince(in.Since, time.Now())
	if err != nil {
		return runnerapi.LogOptions{}, problem.Errorf(problem.Invalid, "give a duration such as 10m or a time in RFC 3339",
			"%v", err).WithField("query.since")
	}
	if !utf8.ValidString(in.Grep) {
		return runnerapi.LogOptions{}, problem.Errorf(problem.Invalid, "give text in UTF-8", "grep is not a text in UTF-8").WithField("query.grep")
	}
	return runnerapi.LogOptions{Follow: in.Follow, Tail: in.Tail, Since: since, Grep: in.Grep}, nil
}

// logCalls are the calls about the logs of Apps.
type logCalls struct {
	*appWork
}

func (s *logCalls) routes() {
	huma.Register(s.api, s.sendsLog(operation("get-app-logs", "Apps", "Read an App's log",
		"All pods' lines, interleaved by time. With since, and without tail, follow and previous, also those that only Loki still has, of pods that are gone. Sent as they come; where the log breaks off, the last line says why, in an object with the key \"error\".", 0)), s.getLogs)
}

// sendsLog documents the answer of a call that sends a log.
func (s *calls) sendsLog(op huma.Operation) huma.Operation {
	schemas := s.api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {
		Description: "One line of the log in each line.",
		Content: map[string]*huma.MediaType{
			runnerapi.NDJSON: {Schema: &huma.Schema{OneOf: []*huma.Schema{
				schemas.Schema(reflect.TypeFor[runnerapi.LogLine](), true, "LogLine"),
				schemas.Schema(reflect.TypeFor[runnerapi.LogError](), true, "LogError"),
			}}},
			"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}},
		},
	}}
	return op
}

func (s *logCalls) getLogs(ctx context.Context, in *logsInput) (*streamOutput, error) {
	opts, err := in.options()
	if err != nil {
		return nil, s.wireError(ctx, err)
	}
	return s.sendLog(ctx, in, opts), nil
}

func (s *appWork) sendLog(ctx context.Context, in *logsInput, opts runnerapi.LogOptions) *streamOutput {
	return s.sendLogOf(ctx, in.Accept, opts, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		return s.apps.Logs(ctx, appKey(in.App), opts, emit)
	})
}

// sendLogOf sends what read emits.
func (s *calls) sendLogOf(ctx context.Context, accept string, opts runnerapi.LogOptions, read logReader) *streamOutput {
	return &streamOutput{Body: func(hc huma.Context) {
		r, w := humachi.Unwrap(hc)
		media := runnerapi.NDJSON
		if wantsText(accept) {
			media = runnerapi.PlainText
		}
		if headAlone(w, r, media) {
			return
		}
		stream := newLogStream(w, runnerapi.NDJSON, wire.EncodeNDJSON, s.stall)
		if media == runnerapi.PlainText {
			stream = newLogStream(w, runnerapi.PlainText, wire.EncodeText, s.stall)
		}
		ctx, cancel := transport.UntilDrain(ctx)
		defer cancel()
		err := stream.run(ctx, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
			return s.logs(ctx, opts, read, emit)
		})
		if err != nil {
			problem.Write(w, problem.RequestID(ctx), err)
		}
	}}
}

// logReader is a backend's way to read a log.
type logReader func(ctx context.Context, emit func(runnerapi.LogLine) error) error

// logs calls the backend and returns errors that may be sent to the caller.
func (s *calls) logs(ctx context.Context, opts runnerapi.LogOptions, read logReader, emit func(runnerapi.LogLine) error) (err error) {
	defer func() { // in a separate goroutine, out of reach of recoverPanics
		if reason := recover(); reason != nil {
			err = s.wireError(ctx, fmt.Errorf("panic: %v\n%s", reason, debug.Stack()))
		}
	}()
	err = read(ctx, func(line runnerapi.LogLine) error {
		if !strings.Contains(line.Line, opts.Grep) {
			return nil
		}
		return emit(line)
	})
	switch {
	case ctx.Err() != nil && errors.As(context.Cause(ctx), new(*runnerapi.Error)):
		return s.wireError(ctx, ctx.Err())
	case transport.Drained(ctx) && opts.Follow:
		return problem.Errorf(problem.Unavailable, "call again: another instance continues", "the agent is shutting down")
	case err == nil:
		return nil
	}
	return s.wireError(ctx, err)
}

// wantsText reports whether the caller prefers plain text: only when it asks for it and not for
// JSON lines.
func wantsText(accept string) bool {
	text := false
	for part := range strings.SplitSeq(accept, ",") {
		media, _, err := mime.ParseMediaType(strings.TrimSpace(part))
		switch {
		case err != nil:
		case media == runnerapi.NDJSON || media == "application/json":
			return false
		case media == "text/plain":
			text = true
		}
	}
	return text
}

// registerLog adds a call for the log of what runs to its end.
func (s *appWork) registerLog(op huma.Operation, kind runnerapi.AppType) {
	huma.Register(s.api, s.sendsLog(op), func(ctx context.Context, in *logsInput) (*streamOutput, error) {
		opts, err := in.options()
		if err == nil {
			_, err = s.run(ctx, appKey(in.App), kind, 0)
		}
		if err != nil {
			return nil, s.wireError(ctx, err)
		}
		opts.UntilDone = true
		return s.sendLog(ctx, in, opts), nil
	})
}
