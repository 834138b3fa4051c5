package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// Observation lets the agent observe calls. Each field may be nil.
type Observation struct {
	// Begun hears of each call when it comes.
	Begun func()
	// Called is called after each answered call, for metrics, with the call's ID in Calls, or
	// OtherCall, so that there are no more IDs than calls.
	Called func(id string, status int, took time.Duration)
	// Tracer makes a span of each call, in its caller's trace.
	Tracer trace.TracerProvider
}

// observed reports each call once it is answered.
func (s *server) observed(next http.Handler) http.Handler {
	if s.observation.Begun == nil && s.observation.Called == nil && s.observation.Tracer == nil {
		return next
	}
	calls := request.CallsByRoute()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		if s.observation.Begun != nil {
			s.observation.Begun()
		}
		r, served := span.Served(r, s.observation.Tracer)
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		whole := false
		defer func() { // also for an answer that broke off
			id, route, status := runnerapi.OtherCall, "", ww.Status()
			if call := request.CallOf(calls, r); call.ID != "" {
				id, route = observedID(call, r), call.Path
			}
			status = cmp.Or(status, http.StatusOK)
			if !whole {
				status = http.StatusInternalServerError
			}
			served(id, route, status)
			if s.observation.Called != nil {
				s.observation.Called(id, status, time.Since(start))
			}
		}()
		next.ServeHTTP(ww, r)
		whole = true
	})
}

// observedID returns a call's ID; of requests to the Kubernetes API with their verb, since a watch
// takes as long as its caller likes.
func observedID(call runnerapi.Call, r *http.Request) string {
	if call.ID != runnerapi.KubernetesCall {
		return call.ID
	}
	k, err := kubernetes.Read(r)
	if err != nil {
		return call.ID + "/" + runnerapi.OtherCall
	}
	return call.ID + "/" + kubernetes.KindOf(k)
}
