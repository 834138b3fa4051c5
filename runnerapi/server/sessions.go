package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// codeUpgrade is the code for a call that must be a WebSocket and is not.
const codeUpgrade = runnerapi.Code("upgrade_required")

type execInput struct {
	params.App
	params.Exec
}

type portForwardInput struct {
	params.App
	params.PortForward
}

// sessionCalls are the calls that reach into an App's pods.
type sessionCalls struct {
	*calls
	sessions backend.Sessions
	recorder backend.Recorder
	audited  *audit.Log
}

func (s *sessionCalls) routes() {
	exec := alsoRefuses(operation(runnerapi.ExecCall, "Apps", "Run a command in a container of an App",
		"A WebSocket with the protocol "+wire.ExecProtocol+", as Kubernetes' own: channel 0 is the command's standard input, 1 its output, 2 its errors, "+
			"3 how it ended, 4 the terminal's size, 255 the end of a channel. A policy has to name this command. "+
			"Where its rule has record: true, the session's output is recorded for the owner of the cluster, and the answer has "+runnerapi.RecordingHeader+".", 0), http.StatusConflict, http.StatusUpgradeRequired)
	exec.Responses = switching(wire.ExecProtocol)
	exec.Responses["101"].Headers = map[string]*huma.Header{runnerapi.RecordingHeader: {Ref: "#/components/headers/" + runnerapi.RecordingHeader}}
	huma.Register(s.api, exec, s.exec)
	forward := alsoRefuses(operation("port-forward-app", "Apps", "Connect to a port of an App's pod",
		"A WebSocket with the protocol "+wire.PortForwardProtocol+", one for each connection: channel 0 is what is sent to the port, 1 what comes from it, "+
			"3 how it ended, 255 the end of a channel. A policy has to name this command.", 0), http.StatusConflict, http.StatusUpgradeRequired)
	forward.Responses = switching(wire.PortForwardProtocol)
	huma.Register(s.api, forward, s.portForward)
}

func switching(protocol string) map[string]*huma.Response {
	return map[string]*huma.Response{"101": {Description: "Switching to a WebSocket that speaks " + protocol + "."}}
}

func (s *sessionCalls) exec(ctx context.Context, in *execInput) (*streamOutput, error) {
	opts := runnerapi.ExecOptions{Command: in.Command, Pod: in.Pod, Container: in.Container, Stdin: in.Stdin, TTY: in.TTY}
	run, err := request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.Execution, error) {
		return s.sessions.Exec(ctx, appKey(in.App), opts)
	})
	if err != nil {
		return nil, s.wireError(ctx, err)
	}
	key := appKey(in.App)
	return s.upgraded(ctx, wire.ExecProtocol, func(r *http.Request, h http.Header) (*opened, error) {
		recording, err := s.record(r, h, backend.Session{Namespace: key.Namespace, Name: key.Name, TTY: opts.TTY})
		if err != nil || recording == nil {
			return &opened{begin: func(c *wire.Channels) inside { return newExecution(c, opts, run) }, close: func() {}}, err
		}
		return &opened{begin: func(c *wire.Channels) inside {
			e := newExecution(c, opts, run)
			e.record(recording)
			return e
		}, close: recording.Close}, nil
	}), nil
}

// record begins the recording of a session and names it in the response header. It returns nil if
// the policy does not require a recording.
func (s *sessionCalls) record(r *http.Request, h http.Header, session backend.Session) (backend.Recording, error) {
	intent, _ := request.Intent(r.Context())
	if !intent.Recorded {
		return nil, nil
	}
	caller := request.Caller(r.Context())
	session.Runner, session.RequestID = caller.Runner, caller.RequestID
	recording, err := s.recorder.Begin(r.Context(), session)
	if err != nil {
		return nil, s.unrecorded(err)
	}
	h.Set(runnerapi.RecordingHeader, recording.ID())
	s.audited.Begin(r, http.StatusSwitchingProtocols, h)
	return logged{recording, s}, nil
}

// unrecorded returns the error for the caller of a session that cannot be recorded.
func (s *sessionCalls) unrecorded(err error) error {
	if err == nil || errors.As(err, new(*runnerapi.Error)) {
		return err
	}
	s.log.Warn().Err(err).Msg("session refused or closed: it cannot be recorded, and the policy requires a recording")
	return recordingUnavailable()
}

// logged is a recording whose failure is logged.
type logged struct {
	backend.Recording
	calls *sessionCalls
}

// Run implements Recording.
func (l logged) Run(ctx context.Context) error { return l.calls.unrecorded(l.Recording.Run(ctx)) }

func (s *sessionCalls) portForward(ctx context.Context, in *portForwardInput) (*streamOutput, error) {
	forward, err := request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.Forwarding, error) {
		return s.sessions.PortForward(ctx, appKey(in.App), runnerapi.PortForwardOptions{Port: in.Port, Pod: in.Pod})
	})
	if err != nil {
		return nil, s.wireError(ctx, err)
	}
	return s.upgraded(ctx, wire.PortForwardProtocol, func(*http.Request, http.Header) (*opened, error) { //nolint:contextcheck // see channels.send
		return &opened{begin: func(c *wire.Channels) inside { return newForwarded(c, forward) }, close: func() {}}, nil
	}), nil
}

// inside is the work of one call.
type inside interface {
	// take is given what the caller sends.
	take(channel byte, p []byte, ended bool) error
	// run does the work until it is done or ctx ends. What take waits for is let go
	// by then.
	run(ctx context.Context) (exitCode int, err error)
}

// opened is work that is ready to begin on a connection. close is called in any case.
type opened struct {
	begin func(*wire.Channels) inside
	close func()
}

// errCallerGone ends the work for a caller that has disconnected.
var errCallerGone = errors.New("the caller is gone")

// upgraded turns the call's connection into a WebSocket and does the work on it. The work ends with
// the caller, with the policy's permission, and when the agent drains. Only a leaving caller takes
// the connection with it, so that the caller receives the reason in the other cases.
//
// open prepares the work before the connection is upgraded, and may add headers to the answer.
func (s *sessionCalls) upgraded(ctx context.Context, protocol string, open func(*http.Request, http.Header) (*opened, error)) *streamOutput {
	return &streamOutput{Body: func(hc huma.Context) {
		r, w := humachi.Unwrap(hc)
		err := upgradable(r, protocol)
		var work *opened
		if err == nil {
			work, err = open(r, w.Header())
		}
		if err != nil {
			problem.Write(w, problem.RequestID(ctx), err)
			return
		}
		defer work.close()
		leave := transport.EnterUpgraded(ctx)
		defer leave()
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
		if err != nil {
			return // it has been answered
		}
		c := wire.NewChannels(ws, s.stall)
		s.converse(ctx, c, work.begin(c))
	}}
}

func (s *sessionCalls) converse(ctx context.Context, c *wire.Channels, work inside) {
	draining, stop := transport.UntilDrain(ctx)
	defer stop()
	working, cancel := context.WithCancelCause(draining)
	connected := context.WithoutCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer func() { _ = c.CloseNow() }()
	defer cancel(nil)
	watching.Go(func() {
		_ = c.Pump(connected, work.take)
		cancel(errCallerGone)
	})
	watching.Go(func() { c.Attend(working, cancel) })
	code, err := work.run(working)
	c.Finish(code, s.ending(ctx, working, err)) //nolint:contextcheck // see channels.send
}

// ending returns the error that the caller receives about the end of the work.
func (s *sessionCalls) ending(ctx, working context.Context, err error) error {
	switch {
	case errors.As(context.Cause(ctx), new(*runnerapi.Error)): // the policy allows it no more
		return s.wireError(ctx, ctx.Err())
	case transport.Drained(ctx):
		return problem.Errorf(problem.Unavailable, "call again: another instance continues", "the agent is shutting down")
	case working.Err() != nil:
		return problem.Errorf(problem.Unavailable, "call again", "the connection was given up")
	case err != nil:
		return s.wireError(ctx, err)
	}
	return nil
}

func upgradable(r *http.Request, protocol string) error {
	offered := false
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			offered = offered || strings.TrimSpace(p) == protocol
		}
	}
	switch {
	case r.Method != http.MethodGet || r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		return problem.New(http.StatusUpgradeRequired, codeUpgrade, "connect with HTTP/1.1 and ask for a WebSocket (RFC 6455)", "this call is a WebSocket")
	case !offered:
		return problem.Errorf(problem.Invalid, "send Sec-WebSocket-Protocol: "+protocol, "the caller does not say that it speaks %s", protocol).WithField("header.Sec-WebSocket-Protocol")
	}
	return nil
}

// recordingUnavailable returns the error for a session that cannot be recorded. The reason is in
// the agent's log.
func recordingUnavailable() *runnerapi.Error {
	return problem.New(http.StatusServiceUnavailable, runnerapi.CodeRecordingUnavailable,
		"try again; if it stays so, the owner of the cluster sees the reason in the agent's log, and makes room by `pipeops-agent recording delete ID`",
		"the customer's policy has sessions recorded, and the agent cannot record this one").
		WithRetryAfter(time.Second)
}
