package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

const (
	// heartbeat keeps proxies from treating a quiet stream as dead.
	heartbeat = 15 * time.Second
	// eventTimeout is how long a caller may take to read one event.
	eventTimeout = 30 * time.Second
)

type eventsInput struct {
	params.App
	params.Events
}

// eventCalls are the calls that follow an App.
type eventCalls struct {
	*appWork
}

func (s *eventCalls) routes() {
	op := operation("get-app-events", "Apps", "Follow what becomes of an App",
		"Server-sent events: the App's state at once, then each change of it, until it has settled, or with follow until the caller hangs up. Comments come as heartbeats. An event named error explains why the stream ended.", 0)
	op.Responses = map[string]*huma.Response{"200": {
		Description: "One event per change; its data is JSON.",
		Content: map[string]*huma.MediaType{
			runnerapi.EventStream: {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[runnerapi.AppEvent](), true, "AppEvent")},
		},
	}}
	huma.Register(s.api, op, s.getEvents)
}

func (s *eventCalls) getEvents(ctx context.Context, in *eventsInput) (*streamOutput, error) {
	if _, err := request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.App, error) {
		return s.apps.Get(ctx, appKey(in.App))
	}); err != nil {
		return nil, s.wireError(ctx, err)
	}
	opts := runnerapi.EventOptions{Follow: in.Follow, After: in.LastEventID}
	return &streamOutput{Body: func(hc huma.Context) {
		r, w := humachi.Unwrap(hc)
		if headAlone(w, r, runnerapi.EventStream) {
			return
		}
		ctx, cancel := transport.UntilDrain(ctx)
		defer cancel()
		s.streamEvents(ctx, w, appKey(in.App), opts)
	}}, nil
}

// headAlone answers HEAD for a stream, which has no end to wait for.
func headAlone(w http.ResponseWriter, r *http.Request, contentType string) bool {
	if r.Method != http.MethodHead {
		return false
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return true
}

// streamEvents writes events and heartbeats until there are no more or the caller is gone. It waits
// for the backend's work to end.
func (s *eventCalls) streamEvents(ctx context.Context, w http.ResponseWriter, key runnerapi.Key, opts runnerapi.EventOptions) {
	ctx, cancel := context.WithCancel(ctx)
	events, done := make(chan runnerapi.AppEvent), make(chan error, 1)
	go func() {
		done <- s.events(ctx, key, opts, func(e runnerapi.AppEvent) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	joined := false
	defer func() {
		cancel()
		if !joined {
			<-done //nolint:errcheck // the caller is gone, so the error has no receiver
		}
	}()
	out := &eventWriter{w: w, rc: http.NewResponseController(w)}
	w.Header().Set("Content-Type", runnerapi.EventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for out.err == nil {
		select {
		case e := <-events:
			out.send(func(w io.Writer) error { return wire.WriteEvent(w, string(e.Type), e.ID, e) })
		case <-beat.C:
			out.send(func(w io.Writer) error { _, err := io.WriteString(w, ": still there\n\n"); return err })
		case err := <-done:
			joined = true
			if problem, ok := errors.AsType[*runnerapi.Error](err); ok {
				out.send(func(w io.Writer) error { return wire.WriteEvent(w, wire.ErrorEvent, "", problem) })
			}
			return
		}
	}
}

// events calls the backend and returns errors that may be sent to the caller.
func (s *eventCalls) events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) (err error) {
	defer func() { // in a separate goroutine, out of reach of recoverPanics
		if reason := recover(); reason != nil {
			err = s.wireError(ctx, fmt.Errorf("panic: %v\n%s", reason, debug.Stack()))
		}
	}()
	err = s.apps.Events(ctx, key, opts, emit)
	switch {
	case ctx.Err() != nil && errors.As(context.Cause(ctx), new(*runnerapi.Error)):
		return s.wireError(ctx, ctx.Err())
	case transport.Drained(ctx):
		return problem.Errorf(problem.Unavailable, "call again with Last-Event-ID: another instance continues", "the agent is shutting down")
	case err == nil || ctx.Err() != nil:
		return nil
	}
	return s.wireError(ctx, err)
}

// eventWriter sends each event at once and remembers that the caller is gone.
type eventWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func (e *eventWriter) send(write func(io.Writer) error) {
	_ = e.rc.SetWriteDeadline(time.Now().Add(eventTimeout)) // only a test's recorder cannot
	if e.err = write(e.w); e.err == nil {
		e.err = e.rc.Flush()
	}
}
