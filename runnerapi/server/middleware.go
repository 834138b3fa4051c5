package server

import (
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// identify finds the caller's name. It accepts unknown callers, which authenticate refuses: the
// health calls need no name.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := runnerapi.Caller{RequestID: problem.RequestID(r.Context())}
		if name, err := credentials.CallerFromTLS(r.TLS, s.trustDomain); err == nil {
			caller.Runner, caller.Actor = name, credentials.ActorOf(r.TLS.VerifiedChains[0][0])
		}
		next.ServeHTTP(w, r.WithContext(request.WithCaller(r.Context(), caller)))
	})
}

// authenticate refuses callers without a name. ServerTLS refuses them earlier; this check holds if
// the handler was mounted on another server by mistake.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if request.Caller(r.Context()).Runner == "" {
			kubernetes.WriteError(w, r, s.log, problem.Errorf(problem.Unauthorized,
				"connect with a certificate made by: pipeops-controlplane runner create NAME",
				"the Runner API needs a Runner's client certificate"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// logCalls logs one line per call, never a body and never a query's value.
func (s *server) logCalls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() { //nolint:contextcheck // the request's own
			caller := request.Caller(r.Context())
			line := s.log.WithLevel(levelOf(r.URL.Path, ww.Status())).
				Str("method", r.Method).
				Str("route", chi.RouteContext(r.Context()).RoutePattern()).
				Int("status", ww.Status()).
				Int("bytes", ww.BytesWritten()).
				Dur("duration", time.Since(start)).
				Str("runner", caller.Runner).
				Str("requestId", caller.RequestID)
			if id := span.TraceID(r.Context()); id != "" {
				line.Str("traceId", id)
			}
			line.Msg("runner API call")
		}()
		next.ServeHTTP(ww, r)
	})
}

// levelOf keeps successful Kubernetes probes out of the log.
func levelOf(path string, status int) zerolog.Level {
	switch {
	case status >= http.StatusInternalServerError && path != "/readyz":
		return zerolog.WarnLevel
	case path == "/healthz" || path == "/readyz":
		return zerolog.DebugLevel
	}
	return zerolog.InfoLevel
}

// recoverPanics answers a panic with a problem. If an answer was already begun, it breaks the
// answer off, so that the caller does not take it for complete.
func (s *server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { //nolint:contextcheck // the request's own
			reason := recover()
			if reason == nil {
				return
			}
			if reason == http.ErrAbortHandler { //nolint:errorlint // the very value, by net/http's contract
				panic(reason)
			}
			id := problem.RequestID(r.Context())
			if r.Context().Err() == nil {
				s.log.Error().Interface("panic", reason).Str("requestId", id).Bytes("stack", debug.Stack()).
					Msg("runner API: a handler panicked; please report this")
			}
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			kubernetes.WriteError(w, r, s.log, problem.Errorf(problem.Internal,
				"look for the request ID in the agent's log", "an unexpected error occurred"))
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.NotFound,
		"see /openapi.json for the calls", "there is no such path: %s", printable.Clip(r.URL.Path)))
}

// noMethod answers a method that the path does not have.
func (s *server) noMethod(routes chi.Routes) http.HandlerFunc {
	return httpserver.NoMethod(func(r *http.Request, method string) bool {
		if method == http.MethodHead {
			method = http.MethodGet // middleware.GetHead
		}
		return routes.Match(chi.NewRouteContext(), method, r.URL.Path)
	}, s.noRoute)
}
